"""The checksum: right by known vectors, the same with and without the crc instruction."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qindex._core import ffi, lib

BOTH = pytest.mark.parametrize("crc32c", [lib.qi_crc32c, lib.qi_crc32c_portable])

# Three interleaved streams begin at 12 words, and a block of them ends at 192: every length up to
# beyond two blocks meets every entry of the multiplication table and every tail.
LENGTH_MAX = 2 * 192 * 8 + 100


@BOTH
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # This and the next three: RFC 3720, appendix B.4.
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_vectors_have_their_known_crc(crc32c, data, expected):
    assert crc32c(0, data, len(data)) == expected


def test_hardware_equals_portable_at_every_length_and_alignment():
    dice = random.Random(1)
    area = ffi.new("uint8_t[]", dice.randbytes(LENGTH_MAX + 64))
    for length in range(LENGTH_MAX):
        at = area + dice.randrange(64)
        crc = dice.getrandbits(32)
        assert lib.qi_crc32c(crc, at, length) == lib.qi_crc32c_portable(crc, at, length), length


def test_hardware_equals_portable_on_a_megabyte():
    data = random.Random(2).randbytes((1 << 20) + 5)
    assert lib.qi_crc32c(0, data, len(data)) == lib.qi_crc32c_portable(0, data, len(data))


def way(number, crc, area, length, to=ffi.NULL):
    """What this way makes of it; None: the processor does not have it."""
    result = ffi.new("uint32_t *", crc)
    return result[0] if lib.qi_crc32c_by(number, result, to, area, length) else None


@pytest.mark.parametrize("number", [1, 2])
def test_each_way_of_the_processor_equals_the_table_and_copies_just_these_bytes(number):
    dice = random.Random(3)
    area = ffi.new("uint8_t[]", dice.randbytes(5000 + 64))
    if way(number, 0, area, 512) is None:
        pytest.skip("this processor does not have it")
    for length in [*range(256, 1200), *range(1200, 5000, 7)]:
        at, crc = area + dice.randrange(64), dice.getrandbits(32)
        expected = way(0, crc, at, length)
        assert way(number, crc, at, length) == expected, length
        copy = ffi.new("uint8_t[]", b"\xa5" * (length + 64))
        assert way(number, crc, at, length, copy) == expected, length
        assert bytes(copy)[:-1] == bytes(ffi.buffer(at, length)) + b"\xa5" * 64


@BOTH
@given(data=st.binary(max_size=600), cut=st.integers(0, 600))
def test_the_crc_of_two_parts_chained_is_that_of_the_whole(crc32c, data, cut):
    head, tail = data[:cut], data[cut:]
    chained = crc32c(crc32c(0, head, len(head)), tail, len(tail))
    assert chained == crc32c(0, data, len(data))


@BOTH
@given(data=st.binary(min_size=1, max_size=300), bit=st.integers(min_value=0))
def test_any_flipped_bit_changes_the_crc(crc32c, data, bit):
    bit %= 8 * len(data)
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    assert crc32c(0, bytes(flipped), len(data)) != crc32c(0, data, len(data))


@BOTH
def test_no_byte_behind_the_input_is_looked_at(crc32c):
    for length in range(100):
        data = bytes(length)
        assert crc32c(0, data + b"\xff" * 8, length) == crc32c(0, data + b"\x00" * 8, length)
