"""Offers: the own table, and catalogues in which every odd row is reported and none is guessed."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from cost_runs import shared
from samestep.cost.errors import CaseError, CostError, OffersError
from samestep.cost.inputs import Offer
from samestep.cost.offers import QUIRKS, Wanted, read_offers, read_table, write_offers
from samestep.cost.offers.aws_history import history_offers, read_history
from samestep.cost.offers.skypilot import read_catalogue

DATA = Path(__file__).parent / "data"
OFFER = Offer(
    provider="own",
    instance='one "and" only',
    region="r",
    zone="z",
    accelerator="H9",
    accelerators=8.0,
    nodes=2,
    on_demand=2.5,
    spot=0.75,
    currency="EUR",
    priced=dt.date(2026, 11, 29),
    billing="per-hour",
    storage_month=0.02,
    transfer=0.09,
    thousand_requests=0.005,
    source="somewhere:7",
)
SPOT_ONLY = Offer(provider="own", instance="two", spot=1.0, source="somewhere:8")


@pytest.mark.parametrize("name", ["offers.csv", "offers.toml"])
def test_an_own_table_is_read_as_it_was_written(tmp_path, name):
    write_offers([OFFER, SPOT_ONLY], tmp_path / name)
    assert read_table(tmp_path / name) == [OFFER, SPOT_ONLY]
    assert read_offers(tmp_path / name).offers == [OFFER, SPOT_ONLY]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("own,one,-2,1,2026-11-29", "offers.csv:2: on_demand is -2; it cannot be negative"),
        ("own,one,,,2026-11-29", "offers.csv:2: the offer has no price"),
        ("own,one,two,1,2026-11-29", "offers.csv:2: on_demand is 'two'; a number"),
        ("own,one,nan,1,2026-11-29", "offers.csv:2: on_demand is nan"),
        ("own,,2,1,2026-11-29", "offers.csv:2: the offer lacks instance"),
        ("own,one,2,1,2026-11-29T10:00", "offers.csv:2: priced is 2026-11-29T10:00:00, and no time zone"),
        ("own,one,2,1", "offers.csv:2: the offer has 4 fields, and the head has 5"),
    ],
    ids=["negative", "missing", "text", "nan", "nameless", "naive", "ragged"],
)
def test_a_row_of_an_own_table_that_cannot_be_meant_is_refused_with_its_line(tmp_path, row, told):
    path = tmp_path / "offers.csv"
    path.write_text(f"provider,instance,on_demand,spot,priced\n{row}\n")
    with pytest.raises(CaseError) as error:
        read_offers(path)
    assert told in error.value.message


def test_a_moment_with_a_time_zone_is_its_day_in_utc(tmp_path):
    path = tmp_path / "offers.csv"
    path.write_text("provider,instance,spot,priced\nown,one,1,2026-11-29T23:30:00-02:00\n")
    assert read_table(path)[0].priced == dt.date(2026, 11, 30)


def test_odd_prices_of_an_own_table_are_reported_too(tmp_path):
    path = tmp_path / "offers.csv"
    path.write_text("provider,instance,on_demand,spot\nown,one,1,2\nown,two,1,1\nown,three,3,1\n")
    found = read_offers(path)
    assert [(quirk.kind, quirk.line) for quirk in found.quirks] == [
        ("spot-is-dearer", 2),
        ("spot-is-on-demand", 3),
    ]


def test_several_currencies_of_a_table_are_said_and_none_is_converted(tmp_path):
    path = tmp_path / "offers.csv"
    path.write_text("provider,instance,spot,on_demand,currency\na,x,1,2,USD\nb,x,1,2,EUR\nc,x,1,2,EUR\n")
    read = read_offers(path)
    (note,) = read.notes
    assert "several currencies, 2 offers in EUR, 1 offer in USD" in note
    assert "nothing is converted" in note
    assert [offer.spot for offer in read.offers] == [1.0] * 3
    assert not read_offers(path, wanted=Wanted(instance="x"), most=1).notes


@pytest.mark.parametrize(
    ("name", "content", "told", "hint"),
    [
        ("a.csv", "provider,instance,spott,on_demand\na,b,1,2\n", "unknown column 'spott'", "spot?"),
        ("a.csv", "provder,instance,spot\na,b,1\n", "unknown column 'provder'", "provider?"),
        ("a.toml", '[[offer]]\nprovider = "a"\n', "offer is no key", "offers?"),
        ("a.toml", '[[offers]]\nprovdier = "a"\n', "offers[1].provdier is no key", "provider?"),
        ("aws_vms.csv", "InstanceType,Region,Prize\nx,y,1\n", "no column AcceleratorName", ""),
        (
            "aws_vms.csv",
            "InstanceType,AcceleratorName,AcceleratorCount,Region,Prize,SpotPrice\n",
            "no column Price",
            "'Prize'?",
        ),
    ],
    ids=["column", "needed-column", "table", "key", "columns", "catalogue"],
)
def test_a_misspelt_name_in_a_file_of_offers_is_answered_with_the_nearest_one(
    tmp_path, name, content, told, hint
):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(CostError, match=re.escape(told)) as error:
        read_offers(path)
    assert hint in error.value.hint


def test_every_odd_row_of_a_catalogue_is_reported_with_its_line():
    found = read_offers(DATA / "aws" / "vms.csv", priced=dt.date(2026, 11, 1))
    by_kind = {}
    for quirk in found.quirks:
        by_kind.setdefault(quirk.kind, []).append(quirk.line)
    assert set(by_kind) <= set(QUIRKS)
    assert len(by_kind.pop("zone-id")) == 11
    assert by_kind == {
        "no-spot": [3, 9],
        "spot-is-on-demand": [4],
        "spot-is-dearer": [5],
        "no-on-demand": [6],
        "no-price": [7],
        "contradiction": [9],
        "repeated": [11],
        "bad-price": [12, 13, 14],
        "free": [15],
        "ragged": [16],
        "count-differs": [17],
        "gpu-info": [18],
    }
    assert found.rows == 18
    contradiction = next(quirk for quirk in found.quirks if quirk.kind == "contradiction")
    assert "spot ''; line 8: on-demand '40.0', spot '8.100000'" in contradiction.text


def test_no_price_is_made_up_and_rows_that_contradict_each_other_are_not_used():
    offers = {(offer.instance, offer.zone): offer for offer in read_offers(DATA / "aws" / "vms.csv").offers}
    assert offers["x1.large", "usn1-az1"] == Offer(
        provider="aws", instance="x1.large", region="us-north-1", zone="usn1-az1", accelerator="V9",
        accelerators=1.0, on_demand=3.0, spot=0.9, source=f"{DATA / 'aws' / 'vms.csv'}:2",
    )  # fmt: skip
    assert offers["x1.large", "usn1-az2"].spot is None
    assert offers["x5e.huge", "usn1-az1"].on_demand is None
    assert ("x4de.huge", "usn1-az4") not in offers
    assert not [
        name for name in offers if name[0] in ("x5.huge", "x2.large", "x3.large", "x6.large", "x8.large")
    ]
    assert offers["x9.large", "us-north-1a"].accelerators == 2.0
    assert all(offer.priced is None for offer in offers.values())


@pytest.mark.parametrize(
    ("cloud", "counts", "used"),
    [
        ("gcp", {"host-only": 2, "accelerator-only": 1}, ["n2-standard-8"]),
        ("nebius", {"memory-of-host": 2}, ["gpu-h9_1gpu", "gpu-h9_8gpu"]),
        ("runpod", {"spot-is-on-demand": 1, "memory-unit": 1}, ["1x_A9"]),
        ("verda", {"gpu-info-json": 2, "no-on-demand": 1}, ["1B9.30V", "2B9.60V"]),
        ("lambda", {"no-spot": 1, "memory-total": 1}, ["gpu_8x_a9"]),
    ],
    ids=str,
)
def test_each_cloud_has_its_own_oddities(cloud, counts, used):
    found = read_offers(DATA / cloud / "vms.csv")
    assert found.counts == counts
    assert [offer.instance for offer in found.offers] == used
    assert {offer.provider for offer in found.offers} == {cloud}
    assert any("have no date" in note for note in found.notes)


def test_only_wanted_rows_are_looked_at():
    found = read_offers(DATA / "aws" / "vms.csv", wanted=Wanted(instance="X1.*", zone="usn1-*"))
    assert [offer.zone for offer in found.offers] == ["usn1-az1", "usn1-az2"]
    assert found.counts == {"zone-id": 2, "no-spot": 1, "ragged": 1}  # whose a torn row is, nobody knows


def test_a_catalogue_that_does_not_say_whose_it_is_is_refused(tmp_path):
    path = tmp_path / "vms.csv"
    path.write_bytes((DATA / "aws" / "vms.csv").read_bytes())
    with pytest.raises(OffersError, match="does not say whose offers") as error:
        read_offers(path)
    assert "--provider" in error.value.hint
    assert read_offers(path, provider="aws").offers[0].provider == "aws"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "metadata.csv",
            "GPU,MemoryGB,Manufacturer\nH9,80,nvidia\n",
            "neither a table of offers nor a catalogue",
        ),
        ("aws_vms.csv", "InstanceType,Region,Price\nx,y,1\n", "no column AcceleratorName"),
        ("a.json", "[1, 2]", "is no price history"),
        ("a.json", "[" * 100_000, "is no JSON"),
        ("a.json", '{"SpotPriceHistory": [', "is no JSON"),
        ("a.json", '{"SpotPriceHistory": [1]}', "no list of entries"),
        ("a.toml", "x = ", "is no TOML"),
        ("a.toml", "seed = 1", "has no offers"),
        ("a.csv", "", "neither a table of offers"),
        ("a.csv", b"\xff\xfe\x00", "is no CSV"),
    ],
    ids=["metadata", "columns", "list", "deep", "torn", "entries", "toml", "toml-other", "empty", "binary"],
)
def test_a_file_of_another_format_is_refused(tmp_path, name, content, told):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CostError, match=told):
        read_offers(path)


def test_a_catalogue_is_no_own_table_and_the_way_to_make_one_is_said():
    with pytest.raises(OffersError, match="no column provider") as error:
        read_table(DATA / "aws" / "vms.csv")
    assert "samestep cost import" in error.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path):
    for name in ("none.csv", "none.json", "none.toml"):
        with pytest.raises(OffersError, match="cannot read"):
            read_offers(tmp_path / name)


def test_a_price_history_gives_the_newest_price_and_the_mean_over_time():
    found = read_offers(DATA / "price_history.json")
    newest = {(offer.instance, offer.zone): offer for offer in found.offers}
    assert set(newest) == {("x5.huge", "us-north-1a"), ("x1.large", "us-north-1a")}
    offer = newest["x5.huge", "us-north-1a"]
    assert (offer.spot, offer.on_demand, offer.priced) == (30.0, None, dt.date(2026, 11, 29))
    assert (offer.provider, offer.region, offer.currency) == ("aws", "us-north-1", "USD")
    assert any("the mean from 2026-11-29 00:00 to 2026-11-29 12:00 UTC is 15" in note for note in found.notes)
    assert {kind: count for kind, count in found.counts.items() if kind in QUIRKS} == {
        "no-time-zone": 1, "same-moment": 1, "bad-price": 1, "bad-time": 1, "other-product": 1,
    }  # fmt: skip


def test_the_mean_is_weighted_by_how_long_each_price_held_in_the_window():
    entries = [("10.0", "2026-11-29T00:00:00Z"), ("40.0", "2026-11-29T18:00:00+00:00")]
    tree = {
        "SpotPriceHistory": [
            {"AvailabilityZone": "u-1a", "InstanceType": "x", "SpotPrice": price, "Timestamp": at}
            for price, at in entries
        ]
    }
    day = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)
    for since, until, mean in (
        (None, day + dt.timedelta(days=1), (18 * 10 + 6 * 40) / 24),
        (day + dt.timedelta(hours=17), day + dt.timedelta(hours=20), (10 + 2 * 40) / 3),
        (None, day + dt.timedelta(hours=12), 10.0),
        (None, None, 10.0),
    ):
        (history,), _, _ = read_history(tree, file="f", since=since, until=until)
        assert history.mean == pytest.approx(mean)
        assert history_offers([history], "f", mean=True)[0].spot == history.mean
    with pytest.raises(OffersError, match="no time zone"):
        read_history(tree, file="f", since=dt.datetime(2026, 11, 29))  # noqa: DTZ001 - the subject
    with pytest.raises(OffersError, match="is empty"):
        read_history(tree, file="f", since=day, until=day)


def test_a_history_that_goes_on_elsewhere_says_so(tmp_path):
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"SpotPriceHistory": [], "NextToken": "abc"}))
    assert read_offers(path).counts == {"more-pages": 1}


def catalogue_lines(rows):
    """A catalogue of that many rows, one after the other: nobody holds them all."""
    yield "InstanceType,AcceleratorName,AcceleratorCount,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
    info = "\"{'Gpus': [{'Name': 'V9', 'Count': 1, 'MemoryInfo': {'SizeInMiB': 4096}}], 'TotalGpuMemoryInMiB': 4096}\""
    for number in range(rows):
        spot = "" if number % 10 == 0 else f"0.{number % 9 + 1}"
        names = f"x{number % 997}.large,V{number % 50}", f"r-{number % 101},r-{number}"
        yield f"{names[0]},1.0,61.0,{info},{number % 7 + 1}.5,{spot},{names[1]}\n"


def read_large(rows, **arguments):
    tracemalloc.start()
    began = time.monotonic()
    found = read_catalogue(catalogue_lines(rows), file="vms.csv", provider="aws", **arguments)
    seconds, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, seconds, peak


def test_memory_does_not_grow_with_the_rows_of_a_catalogue():
    wanted = Wanted(accelerator="V7", region="r-7")
    small, _, low = read_large(2_000, wanted=wanted, most=5)
    large, _, high = read_large(40_000, wanted=wanted, most=5)
    assert (small.rows, large.rows) == (2_000, 40_000)
    assert len(large.offers) == 5
    assert large.left_out == sum(n % 50 == 7 and n % 101 == 7 for n in range(40_000)) - 5
    assert high < low + 300_000


@pytest.mark.full
@pytest.mark.parametrize("wanted", [Wanted(accelerator="V7"), Wanted()], ids=["filtered", "everything"])
def test_a_catalogue_of_a_million_rows_is_read_in_bounded_memory(wanted):
    counted = []
    found, seconds, peak = read_large(
        1_000_000, wanted=wanted, told=counted.append if wanted.accelerator else None
    )
    assert found.rows == 1_000_000
    assert len(found.offers) == 1000
    assert found.left_out + len(found.offers) == (1_000_000 if not wanted.accelerator else 20_000)
    assert peak < 20_000_000, f"{peak:,} bytes, {seconds:.1f} s"


def test_the_shared_excerpts_show_the_quirks_that_were_found_in_them():
    folder = shared("catalog-sample")
    expected = {
        "aws_vms_v7_excerpt.csv": {
            "zone-id", "no-spot", "no-price", "no-on-demand", "spot-is-on-demand", "contradiction",
        },
        "gcp_vms_v7_excerpt.csv": {"host-only", "accelerator-only"},
        "lambda_vms_v7_excerpt.csv": {"no-spot", "memory-total"},
        "nebius_vms_v7_excerpt.csv": {"memory-of-host", "no-spot"},
        "nebius_vms_v8_excerpt.csv": {"no-spot"},
        "runpod_vms_v8_excerpt.csv": {"spot-is-on-demand", "memory-unit"},
        "verda_vms_v8_excerpt.csv": {"gpu-info-json", "no-on-demand", "no-spot"},
    }  # fmt: skip
    for name, kinds in expected.items():
        found = read_offers(folder / name)
        assert set(found.counts) == kinds
        assert sum(found.counts.values()) == len(found.quirks)
    with pytest.raises(OffersError, match="neither a table"):
        read_offers(folder / "metadata_v7.csv")


def test_the_shared_price_history_is_read():
    (offer,) = read_offers(shared("notices", "aws_spot_price_history.json")).offers
    assert (offer.instance, offer.zone, offer.spot) == ("p5.48xlarge", "us-east-1a", 30.326)
