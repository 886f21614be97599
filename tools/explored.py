"""What the crash explorer found, or has to find: programs with their story and the bug behind it.

They are found too seldom by chance, so ``explore.py --mutants`` plays them. In the engine as it is
nothing may be found.
"""

from typing import NamedTuple

# Bugs in what is done about a call that failed: power cuts do not show them, --faults does.
# Each with the seed of programs in which a call or an allocation fails where the bug is; what
# has a program below is found by that.
FOUND_BY_FAULTS = {
    "half_loaded_kept": 111,
    "unread_body_cut": 7,
    "unread_header_retired": 4,
    "parked_not_proven": 4,
    "appended_behind_failure": 8,
}
# Bugs in how damage is read: --flips shows them, in the first programs from this seed on.
FOUND_BY_FLIPS = {
    "loss_forgotten": 7,
    "lost_records_forgotten": 6,
    "moment_before_damage_believed": 273,
    "logs_not_named": 7,
    "logs_not_counted": 7,
    "log_before_not_asked": 232,
}
# Bugs that few programs show: the seed from which on one of the first does.
FOUND_FROM = {
    "data_beside_transaction": 57,
    "torn_tail_at_rest": 59,
    "log_gone_before_the_next_is_named": 143,
    "log_begun_too_early": 800,  # seed 2 never ends: what is in no log passes for durable
    "deaths_left_at_move": 60_195,
}


class Explored(NamedTuple):
    story: str
    bug: str  # QI_BUG(...) in the engine: what was wrong
    program: str


EXPLORED = [
    Explored(
        "The sync of bodies failed after the MANIFEST that ended a flush was appended, and the next"
        " open cut the journal before it. The one before it counts then, and with it the old"
        " journal; recovery had believed the one that it cut, and the next rotation wrote over the"
        " old journal.",
        "cut_manifest_believed",
        "seed=16245039396127435257 mapping=0 segment=8 journal=24 bytes=10240 embed=64"
        " file=4096; publish a 13; publish a 632 +e; get a; batch a x5 8 +t; tick; fail 129;"
        " fanout a x2 6; publish a 46; compact; get_many a x7; ack a 663; ack a 504; publish a"
        " 381 +r; publish a 236 +h; publish a 15; fail 386; publish a 51 +h; publish a 855;"
        " publish a 449 +r; get_many a x1; tick; publish a 300; fail 1577529523; flush a; sync"
        " a; get_many a x5; publish a 300; flush a; ack a 3",
    ),
    Explored(
        "A rotation to epoch 4 did not reach the medium whole, so recovery went on in epoch 3. Its"
        " next rotation was to epoch 4 again, in the same file: a second power cut kept the first"
        " life's frames there, and their checksums were right. Lost messages came back.",
        "stale_epoch_kept",
        "seed=6438433404126520799 mapping=1 segment=16 journal=24 bytes=10240 embed=64"
        " file=4096; publish b 46 +e; publish b 39; flush b; publish b 288 +e; publish b 393;"
        " batch b x2 12 +h; publish b 4 +r; publish b 36; publish a 0; cut 750791947; batch b x2"
        " 34; batch b x5 37 +t; tick; batch b x5 0 +r; fanout b x2 28; get_many b x8; publish b 48;"
        " cut 920140638; publish b 52",
    ),
    Explored(
        "A sync of bodies failed after the MANIFEST that ended a flush was appended. The next open"
        " synced the journal, MANIFEST included, found the bodies gone and cut the journal before"
        " both. It had removed the flush's new segment first, as a file that nobody names: a power"
        " cut in between left the MANIFEST without its file.",
        "strays_removed_early",
        "seed=16245039396127435257 mapping=0 segment=8 journal=24 bytes=10240 embed=64"
        " file=4096; publish a 13; publish a 632 +e; get a; batch a x5 8 +t; tick; fail 129;"
        " fanout a x2 7; publish a 46; compact; get_many a x7; ack a 663; ack a 504; publish a"
        " 381 +r; publish a 236 +h; publish a 15; fail 386; publish a 51 +h; publish a 855;"
        " publish a 449 +r; get_many a x1; tick",
    ),
    Explored(
        "Found by a power cut of a real ext4 under a slow machine, then here with sync='never': a"
        " compaction left out what had been acked, and its copy got its name, which moves all"
        " births, before those acks were durable. A power cut in between brought acked messages"
        " back whose bodies nobody could find any more.",
        "copied_before_its_acks",
        "seed=8515015385115473773 mapping=0 segment=16 journal=24 bytes=10240 embed=64 file=4096"
        " never; publish d 48 +t; publish a 355 +t; publish d 1199; compact; publish d 265; get d;"
        " fanout d x2 29; publish d 3364; sync a; ack_many d x5 214; publish a 389 +rh; fail 395;"
        " idle",
    ),
    Explored(
        "All messages of a lane were acked and flushed, so that no segment of it was left, and the"
        " store was closed. Only the LANES frame in front of the CLOSE says where the lane was:"
        " without it the next session gives the same ReqIds again.",
        "lanes_left_out",
        "seed=1 mapping=1 segment=8 journal=24 bytes=10240 embed=64 file=4096; publish a 10 +p;"
        " publish a 10 +p; get_many a x2; ack_many a x2; flush a; reopen; publish a 10 +p; sync a",
    ),
    Explored(
        "A purge took the last segment of a lane, which had been flushed, unread; then a message"
        " was published into the same segment. Recovery did the same, and when it read the file for"
        " the new message it took those that were purged for alive.",
        "lane_tail_purged_unread",
        "seed=1 mapping=1 segment=8 journal=100 bytes=10240 embed=64 file=4096; publish a 1;"
        " flush a; batch a x9 4; publish a 12 +p; publish a 12 +p; publish a 10 +p; flush a; flush"
        " a; sync a; purge a; publish a 12 +p; sync a; cut 3; get a",
    ),
    Explored(
        "Found on a real ext4 whose disk failed one write: the write-back of a flush's batch"
        " failed, the store was opened again without a mount in between, and the next flush wrote"
        " the same pages of the cache again. The blocks were new, so ext4 goes on reading them as"
        " zeros, and the sync says yes: a batch that the MANIFEST names was damaged after the next"
        " mount.",
        "batch_over_failed_pages",
        "seed=17791679924729427012 mapping=0 segment=128 journal=100 bytes=9000 embed=100000"
        " file=4096; publish a 2747; publish a 64; fail 1; publish b 10; publish a 135; sync a;"
        " get a; publish a 51 +e; batch a x2 393; ack a 562; publish a 56; flush b; tick; publish"
        " a 14; reopen; get_many a x4 +l; fail 3; flush a; publish a 387; tick",
    ),
    Explored(
        "A message file was freed by the group commit before the acks that emptied it were durable:"
        " a power cut in the sync took them back, and their messages had no body.",
        "body_freed_before_its_ack",
        "seed=16115979733489965213 mapping=0 segment=16 journal=24 bytes=10240 embed=64 file=700"
        " history=0 never; publish b 29 +p; publish b 30; publish b 263; compact; get_many b x7"
        " +l; publish b 455 +d; fail 840; ack b 83; compact",
    ),
    Explored(
        "The wall clock was set back after a delayed message had become due: it was delivered all"
        " the same, before its time.",
        "due_for_ever",
        "seed=1 mapping=0 segment=8 journal=24 bytes=10240 embed=64 file=4096; create a; publish a"
        " 10 +d; step 999; publish a 20; step 1; get a",
    ),
    Explored(
        "The write-back of a parked queue's journal failed while the file was closed, and the"
        " kernel forgot the error together with the pages: the next sync of the queue said yes to a"
        " message that no medium had. It shows if the disk loses it, not if a call fails.",
        "parked_not_proven",
        "seed=7 mapping=1 segment=16 journal=100 bytes=20000 embed=64 file=4096 files=8; create a;"
        " publish a 20; create b; sync a; cut 5",
    ),
    Explored(
        "A log was begun when the one before was full, and that one went before the journals"
        " that needed it were synced. A power cut left neither the log nor what the journals had"
        " not synced.",
        "log_given_up_early",
        "seed=12303184768967004122 mapping=1 segment=16 journal=12 bytes=9000 embed=64"
        " file=4096 history=30000 files=8 format=2 few=1 log=9500; publish a 358 +e; ack b 66;"
        " publish a 50; publish c 401; get b; batch c x2 10 +t; publish c 57 +pd; ack c 944;"
        " tick; publish b 3341; publish b 59; ack_many c x4 136; fanout b x3 10 +t; ack c 671;"
        " tick; publish b 33; get b; redrive c x3; publish a 55; tick; tick",
    ),
    Explored(
        "A journal took part in a group commit although its header was not durable: a power cut"
        " took the journal, and the COPY in the log had no place to go.",
        "copy_of_unsure_journal",
        "seed=12303184768967004122 mapping=1 segment=16 journal=12 bytes=9000 embed=64"
        " file=4096 history=30000 files=8 format=2 few=1 log=9500; get_many a x8; get a; publish"
        " a 358 +e; ack b 66; publish a 50; get c; sync c; get c +l; advance 263; fail 851;"
        " publish c 1948 +p; batch b x6 24 +ez; delete b; fanout b x1 3101 +teh; sync b; get b;"
        " batch c x2 10 +t; publish c 57 +pd; ack c 944; tick; publish b 3341; publish b 59;"
        " tick; tick; batch b x9 0 +pd; publish a 3357 +d; ack a 992; nack a x7 414 +z; sync c;"
        " publish c 29; sync_all",
    ),
    Explored(
        "The sync of a new commit log failed. The next session read the log from the cache,"
        " went on behind what was there, and its syncs succeeded: but the header was not on the"
        " medium, and MARKs said that it was.",
        "log_barrier_left_out",
        "seed=11018514895137823385 mapping=0 segment=16 journal=24 bytes=20000 embed=100000 "
        "file=4096 history=0 files=0 format=2 few=1 log=1048576; publish a 21; publish a 385;"
        " publish b 413 +r; get_many a x2; fail 385; sync a; fanout b x1 156; nack a x6 454 "
        "+d; compact; fanout b x2 1; compact",
    ),
    Explored(
        "COPYs were appended before the message files were synced. A power cut kept a COPY and"
        " took a body that it names. Its end counts as a MARK, so the journal was not cut before"
        " that message.",
        "body_synced_behind_its_copy",
        "seed=6690556162375806038 mapping=1 segment=16 journal=24 bytes=10240 embed=64 "
        "file=2048 history=30000 files=8 format=2 few=1 log=12000 crowd=0; publish a 161; data "
        "a x7 6; publish b 143 +p; ack a 87; cut 696637910; ack_many a x1 530; get a; batch b "
        "x4 1456; get a; fanout b x2 386; publish b 383 +tp; step 641; tick",
    ),
    Explored(
        "What the commit log has of a journal was written into it, and the file system went on "
        "reading zeros there, because a sync had failed. It was not known how far the journal "
        "had been durable, so what lacked was taken for a torn tail.",
        "copies_are_no_marks",
        "seed=2108130452481165330 mapping=1 segment=8 journal=24 bytes=20000 embed=100000 "
        "file=700 history=30000 files=8 format=2 few=1 log=1048576 crowd=0 alone; create a x8; "
        "publish a 36 +eh; cut 829777831; publish a 40 +dz; transact b x30 53; publish a 0; "
        "publish a 189 +ed; publish a 85 +tpd; tick; publish a 1 +h; get_many a x4; idle; "
        "publish a 31 +ed; batch a x1 27 +z; publish a 319; publish a 223 +e; tick; ack a 807; "
        "fail 35; tick; publish a 2116 +z; ack a 901; transact b x4 355 +tr; get_many a x2; "
        "reschedule a 637 +z; sync a",
    ),
    Explored(
        "A store with two queues was closed: their CLOSE frames were written before what stands in"
        " front of them was durable. A power cut kept the CLOSE, whose MARK says that it was.",
        "rest_not_synced",
        "seed=1 mapping=1 segment=128 journal=100 bytes=20000 embed=100000 file=4096 never;"
        " create a; create b; publish a 3000; publish b 3000; reopen; publish a 2000; publish b"
        " 2500; reopen; publish a 1500; publish b 4000; reopen; publish a 3000; publish b 3000;"
        " reopen; publish a 2000; publish b 2500; reopen",
    ),
    Explored(
        "A queue took part in a transaction although its journal had just begun and its header was"
        " not durable: a power cut took the journal, and a confirmed part of the transaction with"
        " it.",
        "part_of_unsure_journal",
        "seed=7 mapping=1 segment=16 journal=12 bytes=9000 embed=64 file=4096 format=2"
        " few=3 log=20000; create a; create b; publish a 20; publish a 20; publish a 20;"
        " publish a 20; publish a 20; publish a 20; publish a 20; publish a 20; publish a"
        " 20; publish a 20; publish a 20; publish a 20; publish a 20; publish a 20;"
        " transact a x1 40; cut 5; publish a 20",
    ),
    Explored(
        "Two logs were removed when a catalog had what they said. A power cut brought back the"
        " older one alone, and what it said of a mapping was taken on top of the catalog, which"
        " knew better.",
        "old_data_taken_again",
        "seed=6020205206064094377 mapping=1 segment=8 journal=24 bytes=10240 embed=64 file=700 "
        "history=0 files=14 format=1 few=3 log=8800 crowd=0; get_many a x4 +l; fanout a x1 29; "
        "publish a 150; ack_many a x4 796; fail 431; ack_many a x5 922; get a; publish a 58 +z; "
        "get_many a x1; sync a; data a x7 748; expire a; get a; ack_many a x6 557; publish a 17 "
        "+el; publish a 58 +t; data a x4 998; publish a 12; publish a 350; compact; nack a x6 "
        "216; fanout a x3 11; drop a 682; sync_all; publish a 342; idle; transact a x6 358; "
        "get_many a x5; get a; batch a x5 125 +z; publish a 284; publish a 24 +l; publish a 54; "
        "get a; transact a x7 57 +t; publish a 15 +tre; data a x3 95; publish a 59; transact a "
        "x8 7; ack a 675; ack a 677; ack_many a x1 662; get a; ack a 819; transact a x8 190 +t; "
        "publish a 316 +hd; redrive a x7; idle; late a x5 364; reschedule a 843 +d; get a +l; "
        "get_many a x5; ack_many a x8 922; reschedule a 36; get_many a x6; get a; publish a 11 "
        "+ez; ack a 487; publish a 52; upgrade; flush a; publish a 431; sync a; get_many a x6; "
        "publish a 203; publish a 3 +l; transact a x5 25; cut 2145755672; ack_many a x7 716; "
        "data a x3 439; publish a 15; publish a 24 +p; get_many a x6; get a; get a +l; sync a; "
        "expire a; publish a 3407 +l; compact; batch a x30 196 +z; drop a 109; publish a 154; "
        "get a; ack a 93; data a x7 866; sync a; fail 949; tick; get_many a x8; transact a x30 "
        "53; publish a 327 +l; transact a x5 3392 +t; publish a 55 +eh; ack a 559; ack a 389; "
        "transact a x5 56; ack_many a x7 123; publish a 49; transact a x9 3 +hz; sync a; fail "
        "243; flush a; publish a 990 +d; publish a 114 +tdz; tick",
    ),
    Explored(
        "A sync failed, and the file system went on reading new blocks as zeros. Recovery wrote"
        " what the commit log has of the journal there, once: it was not there when it was read"
        " again, and half a frame was called damage. A part of a transaction was lost.",
        "copies_laid_once",
        "seed=2108130452481165330 mapping=1 segment=8 journal=24 bytes=20000 embed=100000"
        " file=700 history=30000 files=8 format=2 few=1 log=1048576 crowd=0 alone; create a x8;"
        " publish a 36 +eh; cut 829777831; publish a 40 +dz; transact b x30 53; publish a 0;"
        " publish a 189 +ed; publish a 85 +tpd; tick; publish a 1 +h; get_many a x4; idle;"
        " publish a 31 +ed; batch a x1 27 +z; publish a 319; publish a 223 +e; tick; ack a 807;"
        " fail 35; tick; publish a 2116 +z; ack a 901; transact b x4 355 +tr; get_many a x2;"
        " reschedule a 637 +z; sync a",
    ),
    Explored(
        "A power cut took the name of the newest commit log and left the catalog that was "
        "written for it. The next session went on in an older log, and the open behind it "
        "passed over what that session had written of data and settings: the catalog was newer.",
        "log_goes_on_behind_catalog",
        "seed=16685738130901230213 mapping=1 segment=16 journal=100 bytes=9000 embed=64 "
        "file=4096 history=0 files=8 format=2 few=1 log=8800 crowd=1 never; publish a 59 +l; "
        "batch a x7 119 +z; data b x1 342 +ehl; data a x2 840; data b x7 10 +t; publish c 0 +l; "
        "transact c x3 166; tick; get c; cut 430980323; data a x3 364",
    ),
    Explored(
        "A message moved, the queue that it came from was deleted, and a power cut took the"
        " transaction, which was not synced, and not the deletion: it was in no queue.",
        "deleted_before_its_moves",
        "seed=1 mapping=1 segment=8 journal=100 bytes=20000 embed=64 file=4096 format=2 few=1"
        " log=1048576; create a; create b; create c; publish a 10; sync_all; transact c x8 102;"
        " delete a; publish b 5",
    ),
    Explored(
        "A dead letter that had expired moved with its expiry: the first get dropped it where it"
        " had gone.",
        "dead_moved_with_its_expiry",
        "seed=1 mapping=1 segment=8 journal=100 bytes=20000 embed=64 file=4096 format=2 few=1"
        " log=1048576; create a; create c; publish c 10 +e; sync_all; advance 999; expire c;"
        " transact a x8 101; get a; get a",
    ),
    Explored(
        "A store was being made; a power cut kept store.meta and lost the names of its folders. A"
        " store without one of them is refused, so it could not be opened.",
        "folders_not_synced",
        "seed=1 mapping=1 segment=8 journal=100 bytes=20000 embed=64 file=4096; create a;"
        " publish a 5",
    ),
    Explored(
        "Empty message files are written over. One kept the header of the file that it had"
        " been: a power cut kept its new name and not yet its new header, and nobody"
        " understood it any more.",
        "blank_keeps_header",
        "seed=12739058956774783130 mapping=0 segment=16 journal=100 bytes=20000 embed=64"
        " file=700 history=30000 files=0 format=1 few=3 log=9500 crowd=1 alone; publish a 434;"
        " publish a 434; publish a 434; get a; ack a 0; get a; ack a 0; publish a 9; tick;"
        " publish a 9; tick; publish a 434; tick; publish a 434; tick; publish a 434; publish"
        " a 434",
    ),
    Explored(
        "An empty message file became the next one at once: a power cut gave it its old name"
        " back, with the header of the next.",
        "blank_not_synced",
        "seed=12739058956774783130 mapping=0 segment=16 journal=100 bytes=20000 embed=64"
        " file=700 history=30000 files=0 format=1 few=3 log=9500 crowd=1 alone; publish a 434;"
        " publish a 434; publish a 434; compact; get a; ack a 710; get a; ack a 710; tick;"
        " tick; publish a 434; publish a 434; publish a 434",
    ),
    Explored(
        "The header of an empty message file was wiped before the loss of its name was"
        " durable: a power cut gave it its old name back, and wiped a part.",
        "blank_wiped_early",
        "seed=13582985961564987876 mapping=1 segment=16 journal=100 bytes=9000 embed=64"
        " file=700 history=0 files=8 format=1 few=3 log=9500 crowd=1; compact; publish a 81"
        " +pd; sync_all; get a; publish b 49 +r; ack b 717; ack_many b x3 76; ack b 277; get"
        " a; flush a; late a x2 184; get a; batch b x9 199 +e; redrive a x2; tick; publish b"
        " 0; advance 630; tick; batch a x3 47 +ez; reject a x7 632; publish a 5 +t; publish b"
        " 31 +hpl; publish b 7; get a; publish b 66; get b; get_many b x2; ack_many a x6 833;"
        " purge b x1; get_many a x1; advance 189; ack a 322; tick",
    ),
    Explored(
        "A get_many had one message in hand when the files of its parked queue were opened for the"
        " next one: the disk had lost that journal, and the store failed. The DELIVER frame of the"
        " message in hand was appended all the same, behind the bytes that were lost.",
        "appended_behind_failure",
        "seed=8 mapping=1 segment=16 journal=100 bytes=20000 embed=64 file=4096 files=8;"
        " create a; publish a 20; flush a; publish a 20; create b; publish b 9; get_many a x4",
    ),
    Explored(
        "A close knew that a queue wanted nothing; in the next session a message came that expires,"
        " and the close of that one left what the first had kept. An open looked at the queue no"
        " more: the message expired, and did not reach the queue of the dead letters.",
        "next_left_as_it_was",
        "seed=1 mapping=1 segment=8 journal=100 bytes=20000 embed=64 file=4096 format=2 few=1"
        " log=1048576 next; create a; publish a 5; reopen; publish a 10 +e; reopen",
    ),
    Explored(
        "A dead letter was acked in its queue before the transaction that moves it to another one:"
        " a power cut in between left it in neither.",
        "dead_acked_before_its_move",
        "seed=1 mapping=1 segment=8 journal=100 bytes=20000 embed=64 file=4096 format=2 few=1"
        " log=1048576; create a; create c; publish c 10; publish c 20; sync_all; get c; get c;"
        " die c x2 1; publish a 5; sync c",
    ),
]
