"""The layers of the C core (c_ext/layers.toml): what a file includes and what it calls lies lower.

Held twice: by the paths of #include, and by the symbols of each object file against the folder that
defines them. The second sees what no include shows: qindex.h declares functions of all layers.
"""

import shutil
import subprocess

import c_tests
import layers
import pytest

TEXTS = {
    str(file.relative_to(layers.CORE)): file.read_text("utf-8")
    for file in sorted(layers.CORE.glob("**/*.[ch]"))
}


def test_every_folder_is_in_the_table():
    named = {*layers.ENGINE, "python", *layers.BESIDE}
    assert {name.partition("/")[0] for name in TEXTS if "/" in name} == named


def test_two_files_of_the_core_do_not_share_a_name():
    names = [name.rpartition("/")[2] for name in TEXTS]
    assert sorted(names) == sorted(set(names))


def test_includes_go_down_only():
    assert layers.wrong_includes(TEXTS) == []


def test_a_folder_has_one_header_for_others_and_at_most_one_of_its_own():
    for folder in [*layers.ENGINE, "foreign"]:
        headers = {name for name in TEXTS if name.startswith(f"{folder}/") and name[-2:] == ".h"}
        assert len(headers - {f"{folder}/{folder}.h"}) <= 1, folder


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("base/codec.c", '#include "disk/disk.h"', "base may not include disk"),
        ("journal/walk.c", '#include "bodies/bodies.h"', "journal may not include bodies"),
        ("index/slots.c", '#include "durable/durable.h"', "index may not include durable"),
        ("engine/types.h", '#include "index/index.h"', "engine may not include index"),
        ("foreign/cursor.h", '#include "queue/queue.h"', "foreign may not include queue"),
        ("store/store.c", '#include "proof/sim/sim.h"', "store may not include proof"),
        ("store/worker.c", '#include "queue/queue_private.h"', "only queue may include it"),
        ("store/worker.c", '#include "../queue/queue.h"', "not a path from c_ext"),
    ],
)
def test_an_include_that_goes_up_is_found(name, line, why):
    (found,) = layers.wrong_includes(TEXTS | {name: f"{line}\n{TEXTS[name]}"})
    assert name in found
    assert why in found


# ---- symbols ----

needs_compiler = pytest.mark.skipif(
    c_tests.compiler() is None or shutil.which("nm") is None, reason="needs cc and nm"
)


@pytest.fixture(scope="module")
def objects():
    return layers.compiled(c_tests.compiler())


@needs_compiler
@pytest.mark.slow
def test_calls_go_down_only(objects):
    assert layers.wrong_calls(objects) == []


@needs_compiler
@pytest.mark.slow
def test_the_symbols_are_those_of_the_engine(objects):
    assert "qi_publish_with" in objects["queue/publish.c"].defined
    assert "qi_segment_find" in objects["queue/publish.c"].used
    assert len(objects) == len([*layers.engine(), *layers.CORE.glob("foreign/*.c")])


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "symbol", "why"),
    [
        ("index/slots.c", "qi_publish_with", "index may not use queue"),  # qindex.h declares it
        ("durable/batch.c", "qi_commit_if_due", "durable may not use store"),
        ("journal/journal.c", "qi_messages_append", "journal may not use bodies"),
        ("foreign/erlang_terms.c", "qi_journal_append", "foreign may not use journal"),
        ("queue/settle.c", "qi_columns_records", "queue may not use look"),
    ],
)
def test_a_call_that_goes_up_is_found(objects, name, symbol, why):
    changed = objects[name]._replace(used=objects[name].used | {symbol})
    (found,) = layers.wrong_calls(objects | {name: changed})
    assert f"{name} uses {symbol}: {why}" == found


@needs_compiler
@pytest.mark.slow
def test_a_call_that_goes_up_is_found_in_a_real_object(objects, tmp_path):
    text = TEXTS["index/warm.c"] + "int qi_up(void) { return qi_store_tick(0); }\n"
    (tmp_path / "warm.c").write_text(text.replace("#include", "int qi_store_tick();\n#include", 1))
    command = [c_tests.compiler(), "-D_DEFAULT_SOURCE", f"-I{layers.CORE}", "-c", "warm.c"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    changed = objects | {"index/warm.c": layers.symbols(tmp_path / "warm.o")}
    (found,) = layers.wrong_calls(changed)
    assert found == "index/warm.c uses qi_store_tick: index may not use store"


@needs_compiler
@pytest.mark.slow
def test_the_picture_in_the_architecture_is_that_of_the_code(objects):
    page = (layers.CORE.parent / "ARCHITECTURE.rst").read_text("utf-8")
    picture = "".join(f"    {line}\n" for line in layers.as_text(objects).splitlines())
    assert picture in page, "python tools/layers.py prints it"


@needs_compiler
@pytest.mark.slow
def test_a_call_that_goes_up_shows_in_the_picture(objects):
    changed = objects["base/codec.c"]
    changed = changed._replace(used=changed.used | {"qi_publish_with"})
    rows = layers.as_text(objects | {"base/codec.c": changed}).splitlines()
    assert "x" in next(row for row in rows if row.startswith("base"))
    assert "x" not in next(row for row in layers.as_text(objects).splitlines() if row[:4] == "base")
