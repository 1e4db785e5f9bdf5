import concurrent.futures
import shutil
import subprocess

import pytest
from blake3 import blake3

from samestep.bundle.digests import (
    CHUNK_BYTES,
    ChunkDigests,
    chunk_count,
    chunk_range,
    combine,
    digest_chunk,
    digest_content,
    digest_file,
    verify_chunk,
)
from samestep.bundle.errors import DamageError
from samestep.bundle.storage.contents import BufferContent

LARGE = b"".join(bytes([number]) * (CHUNK_BYTES // 2) for number in range(5)) + b"tail"
EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""The BLAKE3 of nothing, from the test vectors of BLAKE3 itself."""


@pytest.mark.parametrize(
    ("size", "count"),
    [(0, 1), (1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (3 * CHUNK_BYTES, 3), (1 << 50, 1 << 26)],
)
def test_chunks_cover_a_part_without_gap_or_overlap(size, count):
    assert chunk_count(size) == count
    last_offset, last_length = chunk_range(count - 1, size)
    assert last_offset == (count - 1) * CHUNK_BYTES
    assert last_offset + last_length == size
    assert chunk_range(0, size) == (0, min(size, CHUNK_BYTES))


def test_a_part_of_one_chunk_has_the_blake3_of_its_bytes():
    for content in (b"", b"x", bytes(CHUNK_BYTES)):
        written = digest_content(BufferContent(content))
        assert (written.size, written.algorithm, written.chunks) == (len(content), "blake3", ())
        assert written.digest == blake3(content).hexdigest()
    assert digest_content(BufferContent(b"")).digest == EMPTY


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_larger_part_has_the_blake3_of_its_chunks_digests(threads):
    pieces = [LARGE[start : start + CHUNK_BYTES] for start in range(0, len(LARGE), CHUNK_BYTES)]
    written = digest_content(BufferContent(LARGE), threads)
    assert written.algorithm == "blake3-16MiB"
    assert written.chunks == tuple(blake3(piece).hexdigest() for piece in pieces)
    assert written.digest == blake3(b"".join(blake3(piece).digest() for piece in pieces)).hexdigest()
    assert combine(written.chunks) == (written.algorithm, written.digest)


def test_a_file_has_the_digest_of_its_content(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(LARGE)
    assert digest_file(path, threads=2) == digest_content(BufferContent(LARGE))


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path):
    class Shorter(BufferContent):
        size = 2 * CHUNK_BYTES

        def __init__(self):
            super().__init__(bytes(CHUNK_BYTES))
            self.size = 2 * CHUNK_BYTES

        def read_into(self, offset, target):
            if offset:
                raise OSError("the file ended")
            super().read_into(offset, target)

    for threads in (1, 2):
        with pytest.raises(OSError, match="ended"):
            digest_content(Shorter(), threads)


def test_every_order_and_every_moved_or_missing_chunk_counts():
    chunks = [digest_chunk(bytes([number])) for number in range(4)]
    values = {
        combine(chunks)[1],
        combine(chunks[::-1])[1],
        combine(chunks[:3])[1],
        combine([*chunks, chunks[0]])[1],
    }
    assert len(values) == 4


def test_chunks_may_be_added_in_any_order_from_several_threads():
    digests = ChunkDigests(len(LARGE))
    pieces = [(number, chunk_range(number, len(LARGE))) for number in range(chunk_count(len(LARGE)))]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda job: digests.add(job[0], LARGE[job[1][0] :][: job[1][1]]), reversed(pieces)))
    assert digests.written() == digest_content(BufferContent(LARGE))


def test_a_chunk_of_the_wrong_length_or_never_added_is_a_mistake_of_the_caller():
    digests = ChunkDigests(CHUNK_BYTES + 4)
    with pytest.raises(ValueError, match="chunk 1 has 5 bytes instead of 4"):
        digests.add(1, b"12345")
    digests.add(1, b"1234")
    with pytest.raises(ValueError, match="1 of 2 chunks were never digested"):
        digests.written()


def test_a_chunk_is_verified_and_every_flipped_bit_is_damage():
    data = bytearray(b"the bytes of a chunk")
    expected = digest_chunk(data)
    verify_chunk(data, expected, what="model.safetensors of b-1")
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError, match=r"model.safetensors of b-1 was changed"):
            verify_chunk(data, expected, what="model.safetensors of b-1")
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.skipif(not shutil.which("b3sum"), reason="b3sum is not installed")
def test_b3sum_checks_a_part(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"x" * 100_000)
    shown = subprocess.run(["b3sum", "--no-names", path], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == digest_file(path).digest
