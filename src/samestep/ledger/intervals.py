"""How often to save, and what a run that is interrupted comes to, in closed form. Pure; lives are exponential.

Every duration is in seconds. The letters of the formulas, as literature has them:

========  ====================  ===================================================================
letter    argument              meaning
========  ====================  ===================================================================
W         work_seconds          productive time of the whole run
tau       interval_seconds      productive time between two saves
delta     save_seconds          training stands still for one save
c         persist_seconds       from then until the save would survive the machine (asynchronous)
s         persist_share         share by which training is slower meanwhile
R         restart_seconds       from a machine that is there to the first new step
M         life_seconds          mean running time between interruptions of the job
p, q      usable_notice, 1 - p  share of interruptions that announce themselves early enough to save
g         notice_seconds        billed time between a notice and the end
Q         wait_seconds          unbilled wait for capacity
========  ====================  ===================================================================
"""

from __future__ import annotations

import dataclasses
import math

_LARGEST = 700.0
"""Exponent of the largest numbers."""


def young_interval(save_seconds: float, life_seconds: float) -> float:
    """Return Young's interval, ``sqrt(2 delta M)``: the first-order optimum.

    Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974). Valid for
    a save that is short against the life (a percent of it); beyond, it is too long.
    """
    return math.sqrt(2 * max(save_seconds, 0.0) * life_seconds)


def daly_interval(save_seconds: float, life_seconds: float) -> float:
    """Return Daly's interval, the higher-order optimum.

    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22 (2006), equation 37. Valid for every save; one that costs two lives or more is made
    once a life.
    """
    if save_seconds <= 0:
        return 0.0
    if save_seconds >= 2 * life_seconds:
        return life_seconds
    ratio = save_seconds / (2 * life_seconds)
    first_order = young_interval(save_seconds, life_seconds)
    return first_order * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def daly_wall(
    work_seconds: float,
    interval_seconds: float,
    save_seconds: float,
    life_seconds: float,
    restart_seconds: float = 0.0,
) -> float:
    """Return Daly's running time, ``M exp(R/M) (exp((tau+delta)/M) - 1) W/tau``.

    Source: as ``daly_interval``. Exact for exponential lives and blocking saves when the run is already
    going (the first start is not in it) and W is a multiple of tau.
    """
    grown = _expm1((interval_seconds + save_seconds) / life_seconds)
    each = life_seconds * (1 + _expm1(restart_seconds / life_seconds)) * grown
    return each * work_seconds / interval_seconds


def exact_interval(
    save_seconds: float,
    life_seconds: float,
    *,
    usable_notice: float = 0.0,
    persist_seconds: float = 0.0,
    persist_share: float = 0.0,
) -> float:
    """Return the interval that minimises the running time: ``(M/q) (1 + W0(-exp(-1 - q delta'/M)))``.

    W0 is Lambert's function and ``delta' = delta + s c`` what one save costs. Source: setting the derivative of
    Daly's running time to zero; with notices after Aupy, Robert and Vivien, "Checkpointing algorithms and fault
    prediction" (2013), whose recall is our p. Exact for q = 1; for q < 1 to first order in q tau / M. It depends
    neither on R, Q and g nor on a price. Never shorter than a save takes to become durable, as saves do not overlap.

    Returns:
        Seconds; infinite when every interruption is announced in time and saves cost something.
    """
    floor = (1 - persist_share) * persist_seconds
    cost, lossy = save_seconds + persist_share * persist_seconds, 1 - usable_notice
    if cost <= 0:
        return floor
    if lossy <= 0:
        return math.inf
    return max(floor, life_seconds / lossy * _one_plus_lambert(lossy * cost / life_seconds))


def _one_plus_lambert(x: float) -> float:
    """Return ``1 + W0(-exp(-1 - x))`` for positive x: the y in (0, 1) with ``-log(1 - y) - y = x``.

    Newton from the right of the root of a convex function. Evaluating W0 itself would lose half of the digits where x
    is small, next to its branch point.
    """
    y = min(math.sqrt(2 * x), -math.expm1(-1 - x))
    for _ in range(60):
        if y >= 1:
            return 1.0
        change = (-math.log1p(-y) - y - x) * (1 - y) / y
        y -= change
        if abs(change) <= 1e-15 * y:
            break
    return y


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a run comes to on average.

    Attributes:
        run_seconds: machines are there and no notice was given.
        interruptions: number.
        billed_seconds: machines are there: ``T + N g``.
        wall_seconds: from the start to the end: ``T + N (g + Q)``.
    """

    run_seconds: float
    interruptions: float
    billed_seconds: float
    wall_seconds: float


def extended(
    *,
    work_seconds: float,
    interval_seconds: float,
    save_seconds: float,
    life_seconds: float,
    restart_seconds: float = 0.0,
    persist_seconds: float = 0.0,
    persist_share: float = 0.0,
    usable_notice: float = 0.0,
    notice_seconds: float = 0.0,
    wait_seconds: float = 0.0,
    first_seconds: float | None = None,
) -> Expected:
    """Return what a run with asynchronous saves, restarts and notices comes to.

    ``T = W M/G + M (exp((R + q l)/M) - 1) + p l`` and ``N = T/M``. G is the lasting progress of one life
    (``lasting_gain``): after a usable notice all that was done lasts, otherwise what the last durable save holds. The
    rest is the first start and the last save's way to durability, ``l = (1-s) c + (1 - exp(-p W/M)) (delta + s c)/2``:
    once a notice has shifted the saves, the last interval is a broken one.

    Source: renewal-reward theorem; Wald's identity for N. Without asynchrony and notices it is Daly's running time plus
    the first start. Exact for q = 1 and W a multiple of tau; otherwise the first term is exact in the long run, and the
    ends are right to a fraction of a save (q = 1: of an interval). Infinite where no life ever gets to a durable save.
    For short intervals W M/G is nearly ``(M/q) exp(R/M) (exp(q (tau+delta)/M) - 1) exp(q c/M) W/tau``, which shows that
    neither R, Q and g nor c move the best interval.

    Arguments are those of the table above; ``first_seconds`` is the productive time before the first save of each life,
    if it differs from the interval.

    Raises:
        ValueError: the interval is shorter than a save takes to become durable.
    """
    life, lossy = life_seconds, 1 - usable_notice
    gain = lasting_gain(
        interval_seconds=interval_seconds,
        save_seconds=save_seconds,
        life_seconds=life,
        restart_seconds=restart_seconds,
        persist_seconds=persist_seconds,
        persist_share=persist_share,
        usable_notice=usable_notice,
        first_seconds=first_seconds,
    )
    slower = persist_share * persist_seconds
    shifted = -math.expm1(-usable_notice * work_seconds / life)
    last = persist_seconds - slower + shifted * (save_seconds + slower) / 2
    ends = life * _expm1((restart_seconds + lossy * last) / life) + usable_notice * last
    if gain <= 0 or math.isinf(ends):
        return Expected(math.inf, math.inf, math.inf, math.inf)
    run = work_seconds * life / gain + ends
    interruptions = run / life
    return Expected(
        run_seconds=run,
        interruptions=interruptions,
        billed_seconds=run + interruptions * notice_seconds,
        wall_seconds=run + interruptions * (notice_seconds + wait_seconds),
    )


def lasting_gain(
    *,
    interval_seconds: float,
    save_seconds: float,
    life_seconds: float,
    restart_seconds: float = 0.0,
    persist_seconds: float = 0.0,
    persist_share: float = 0.0,
    usable_notice: float = 0.0,
    first_seconds: float | None = None,
) -> float:
    """Return the productive seconds of one exponential life that outlast it, on average.

    With t1 productive seconds before the first save of a life, ``C = tau + delta + s c`` from save to save, and all
    times divided by M::

        q exp(-(R + t1 + delta + c)) (t1 + tau exp(-C) / (1 - exp(-C)))                       lost without notice
      + p M exp(-R) (1 - exp(-t1) + exp(-t1 - delta) B / (1 - exp(-C)))                       saved at the notice
        B = (1 - s) (1 - exp(-c)) + exp(-c) - exp(-(C - delta))

    Source: sums over the saves of a life. Exact.

    Raises:
        ValueError: the interval is shorter than a save takes to become durable.
    """
    life, slower = life_seconds, persist_share * persist_seconds
    if interval_seconds * (1 + 1e-12) < persist_seconds - slower:
        raise ValueError(
            f"saves every {interval_seconds} s overlap: each takes {persist_seconds} s to persist"
        )
    first = interval_seconds if first_seconds is None else first_seconds
    cycle = interval_seconds + save_seconds + slower
    dies, started = -math.expm1(-cycle / life), math.exp(-restart_seconds / life)
    durable = math.exp(-(first + save_seconds + persist_seconds) / life)
    lost = started * durable * (first + interval_seconds * math.exp(-cycle / life) / dies)
    lag = math.exp(-persist_seconds / life)
    busy = (1 - persist_share) * (1 - lag) + lag - math.exp(-(cycle - save_seconds) / life)
    later = math.exp(-(first + save_seconds) / life) * busy / dies
    kept = started * life * (later - math.expm1(-first / life))
    return (1 - usable_notice) * lost + usable_notice * kept


def _expm1(x: float) -> float:
    """Return ``exp(x) - 1``, infinite where it is beyond all numbers: such a run never ends."""
    return math.expm1(x) if x < _LARGEST else math.inf


def mean_life(lives: list[float], *, assumed_seconds: float) -> float:
    """Return the mean time between interruptions, learned from the attempts that a run has had.

    The assumption counts as one interruption that was observed, so that a single early loss does not rule.

    Args:
        lives: seconds that each interrupted attempt is known to have lived.
        assumed_seconds: what is believed before anything was seen.
    """
    return (assumed_seconds + sum(lives)) / (1 + len(lives))
