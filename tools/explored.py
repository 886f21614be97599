"""What the crash explorer found: shrunk programs, each with its story and the bug behind it.

They are found too seldom by chance, so ``explore.py --mutants`` plays them. In the engine as it is
nothing may be found.
"""

from typing import NamedTuple


class Explored(NamedTuple):
    story: str
    bug: str  # QI_BUG(...) in the engine: what was wrong
    program: str


EXPLORED = [
    Explored(
        "A body was lost in a power cut, so recovery cut the journal before its record. The"
        " MANIFEST that ended a flush stood behind the cut, and recovery had believed it already:"
        " it removed a dead segment that the MANIFEST before it still names.",
        "cut_manifest_believed",
        "seed=5653751148059074118 mapping=1 segment=8 journal=24 bytes=9000 embed=64 file=2048;"
        " publish a 51; publish a 7; sync a; fanout a x2 39 +r; fanout a x3 15; get_many a x7;"
        " batch a x4 422 +te; publish a 53; get a; publish a 47; purge a; batch a x7 225;"
        " ack_many a x8 688; reopen; publish a 0 +r; get a; sync_all; publish a 96 +e; tick",
    ),
    Explored(
        "A rotation to epoch 4 did not reach the medium whole, so recovery went on in epoch 3. Its"
        " next rotation was to epoch 4 again, in the same file: a second power cut kept the first"
        " life's frames there, and their checksums were right. Lost messages came back.",
        "stale_epoch_kept",
        "seed=10086538005539274333 mapping=1 segment=16 journal=24 bytes=10240 embed=64 file=4096;"
        " publish b 38 +e; publish b 39; flush b; publish b 288 +e; publish b 393; publish c 11;"
        " batch b x2 12 +h; publish b 22; publish b 4 +r; batch c x6 214; publish b 36;"
        " publish a 0; tick; cut 1609553242; publish d 2 +e; batch b x2 34; batch b x5 37 +t; tick;"
        " batch b x5 0 +r; fanout b x2 28; get_many b x8; publish a 18 +h; publish c 869 +e;"
        " cut 1584523901; publish b 52",
    ),
]
