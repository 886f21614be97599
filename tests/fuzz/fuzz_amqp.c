/* fuzz_amqp.c - arbitrary bytes for what reads AMQP 0-9-1 in C (c_ext/amqp), inside of a Python.
 *
 * The first byte of an input chooses what it is. Bytes of a client: any cut of them gives the same
 * frames, publishes and acks; the next bytes say where they are cut. A message as a store has it:
 * its headers are in memory of their very size, and frames and places are made of it. Steps of what
 * is unacked: they do what a dictionary does. The allocator is malloc, so the sanitizer sees a byte
 * that is read beyond a bytes object.
 *
 * With -DSTANDALONE: reads the files that it is given, once.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "amqp/amqp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qindex.h"

PyMODINIT_FUNC PyInit__wire(void);

/* In the place of the core's qi_publish_bodies(): it reads all, and holds it to what is promised.
 */
static int64_t read_bodies(void *queue, uint32_t count, const uintptr_t *bodies,
                           const uint32_t *body_sizes, const void *headers,
                           const uint32_t *headers_sizes, uint32_t flags, uint64_t expiry_us,
                           uint64_t due_us, const uint8_t *per_flags,
                           const uint64_t *per_expiry_us) {
    static volatile uint8_t last;
    const uint8_t *header = headers;
    if (!count || (uintptr_t)queue != flags + 1 || expiry_us || due_us || per_flags ||
        per_expiry_us)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t at = 0; at < body_sizes[i]; at++)
            last = ((const uint8_t *)bodies[i])[at];
        for (uint32_t at = 0; at < headers_sizes[i]; at++)
            last = header[at];
        if (headers_sizes[i] < 14 || qi_big32(header) != headers_sizes[i] - 4 ||
            memcmp(header + 4, "prefix", 6) != 0 || qi_big32(header + 10) != headers_sizes[i] - 14)
            abort();
        header += headers_sizes[i];
    }
    (void)last;
    return 7;
}

static const char oracle[] =
    "import _wire\n"
    "class Bad(Exception): pass\n"
    "def bad(*what): raise Bad\n"
    "def acks(channel, raw):\n"
    "    return [('ack', channel, raw[i:i + 9]) for i in range(0, len(raw), 9)]\n"
    "def scan(pieces):\n"
    "    scanner, out = _wire.Scanner(4096, lambda *frame: frame, bad), []\n"
    "    scanner.body_max = 100_000\n"
    "    for channel in (0, 1, 2): scanner.open(channel, True)\n"
    "    try:\n"
    "        for piece in pieces:\n"
    "            for each in scanner.frames(piece):\n"
    "                if type(each) is _wire.Publishes:\n"
    "                    groups = each.groups\n"
    "                    assert sum(group[-1] for group in groups) == len(each)\n"
    "                    each.gather([(at, b'prefix', 1) for at in range(len(groups))])\n"
    "                    keys = each.keys()\n"
    "                    assert each.counts == [group[-1] for group in groups]\n"
    "                    tallies = [_wire.Tally() for _ in keys]\n"
    "                    for at, tally in enumerate(tallies): tally.is_watched = at % 2 == 1\n"
    "                    ways = [_wire.Way(at, at + 1, b'prefix', at, tally, True)\n"
    "                            for at, tally in enumerate(tallies)]\n"
    "                    if each.find({key: way for key, way in zip(keys, ways) if key}):\n"
    "                        assert each.found == ways and None not in keys\n"
    "                        watched = list(range(1, len(keys), 2))\n"
    "                        done = each.publish_each(bodies_at, 0, len(keys), 0)\n"
    "                        assert done == (len(keys), 0, watched)\n"
    "                        assert [tally.ready for tally in tallies] == each.counts\n"
    "                    else:\n"
    "                        assert None in keys or len(set(keys)) < len(keys)\n"
    "                    for at, properties, body in each.contents():\n"
    "                        group = groups[at][:-1]\n"
    "                        assert group[5] in (None, properties)\n"
    "                        out.append((group, properties, bytes(body)))\n"
    "                elif each[0] == 0x100:\n"
    "                    out += acks(*each[1:])\n"
    "                elif each[0] != 8: # heartbeats may be swallowed among publishes\n"
    "                    out.append(each)\n"
    "    except Bad:\n"
    "        out.append('bad')\n"
    "    return out\n"
    "def client(raw):\n"
    "    places, raw = raw[:8], raw[8:]\n"
    "    cuts = sorted(place * (len(raw) + 1) // 256 for place in places)\n"
    "    edges = [0, *cuts, len(raw)]\n"
    "    cut = [raw[a:b] for a, b in zip(edges, edges[1:])]\n"
    "    assert scan([raw]) == scan(cut), 'a cut gives something else'\n"
    "def unacked(raw):\n"
    "    real, left, tag = _wire.Unacked(), {}, 1\n"
    "    owners = [object() for _ in range(3)]\n"
    "    for at in range(0, len(raw) - 2, 3):\n"
    "        verb, one, two = raw[at:at + 3]\n"
    "        if verb & 1:\n"
    "            count = one % 6\n"
    "            tag += two & 1\n"
    "            places = b''.join((tag + i).to_bytes(8, 'little') for i in range(count))\n"
    "            real.add(tag, owners[two % 3], places, places)\n"
    "            left |= {tag + i: two % 3 for i in range(count)}\n"
    "            tag += count\n"
    "            continue\n"
    "        multiple = verb >> 1 & 1\n"
    "        gone = [one] if one in left else []\n"
    "        if multiple and (gone or not one):\n"
    "            gone = [each for each in left if each <= one or not one]\n"
    "        known = bool(gone) or bool(multiple and not one)\n"
    "        expected = sorted((each, left.pop(each)) for each in gone)\n"
    "        parts, told = real.settle(one.to_bytes(8, 'big') + bytes([multiple]))\n"
    "        found = [(int.from_bytes(places[i:i + 8], 'little'), owners.index(owner))\n"
    "                 for owner, places, same in parts for i in range(0, len(places), 8)]\n"
    "        assert sorted(found) == expected and told == (None if known else one), 'unacked'\n"
    "        assert len(real) == len(left), 'how many are unacked'\n"
    "def stored(taken, body):\n"
    "    assert len(taken) == 1 and taken.body_bytes == len(body)\n"
    "    taken.addresses(0)\n"
    "    assert taken.places(0, 1, 1) == ((7).to_bytes(8, 'little'), (9).to_bytes(8, 'little'))\n"
    "    if taken.usual(0, 1, True):\n"
    "        frames = taken.frames(1, b'tag', 5, 4096, 0, 1, 1)\n"
    "        scanner, found = _wire.Scanner(1 << 30, lambda *frame: frame, bad), b''\n"
    "        for kind, channel, payload in scanner.frames(frames):\n"
    "            found += payload if kind == 3 else b''\n"
    "        assert found == body, 'another body'\n";

static PyObject *names;

static PyObject *call(const char *name, PyObject *arguments) {
    PyObject *function = PyDict_GetItemString(names, name);
    PyObject *result = function ? PyObject_CallObject(function, arguments) : NULL;
    Py_XDECREF(arguments);
    if (!result) {
        PyErr_Print();
        fprintf(stderr, "fuzz_amqp: %s\n", name);
        abort();
    }
    Py_DECREF(result);
    return NULL;
}

static void begin(void) {
    setenv("PYTHONMALLOC", "malloc", 1);
    setenv("PYTHONHOME", PYTHON_HOME, 1);
    if (PyImport_AppendInittab("_wire", PyInit__wire) != 0)
        abort();
    Py_InitializeEx(0);
    names = PyDict_New();
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    PyObject *address = PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)read_bodies);
    PyDict_SetItemString(names, "bodies_at", address);
    Py_DECREF(address);
    PyObject *code = Py_CompileString(oracle, "fuzz_amqp", Py_file_input);
    PyObject *made = code ? PyEval_EvalCode(code, names, names) : NULL;
    if (!made) {
        PyErr_Print();
        abort();
    }
    Py_DECREF(code);
    Py_DECREF(made);
}

/* The table has two bytes of size in front of it; what is behind it is the body. */
static void read_stored(const uint8_t *data, size_t size) {
    if (size < 2)
        return;
    size_t table = qi_big16(data);
    size -= 2;
    table = table < size ? table : size;
    uint8_t *payload = malloc(size ? size : 1);
    qi_message message = {.req_id = 7, .delivery = 9, .delivery_count = 1};
    message.payload_size = (uint32_t)size;
    message.body_size = (uint32_t)(size - table);
    if (size)
        memcpy(payload, data + 2, size);
    PyObject *given = Py_BuildValue("KKnO", (unsigned long long)(uintptr_t)&message,
                                    (unsigned long long)(uintptr_t)payload, (Py_ssize_t)1, Py_None);
    /* The headers alone: nothing stands behind them that a reader may take for theirs. */
    uint8_t *alone = malloc(table ? table : 1);
    struct qi_stored found;
    memcpy(alone, payload, table);
    qi_read_stored((struct qi_piece){alone, table}, &found);
    free(alone);
    PyObject *taken = qi_taken_of_store(NULL, given);
    call("stored",
         Py_BuildValue("(Ny#)", taken, (const char *)payload + table, (Py_ssize_t)(size - table)));
    Py_DECREF(given);
    free(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!names)
        begin();
    if (size == 0)
        return 0;
    if (data[0] % 4 == 3)
        read_stored(data + 1, size - 1);
    else
        call(data[0] % 4 == 2 ? "unacked" : "client",
             Py_BuildValue("(y#)", (const char *)data + 1, (Py_ssize_t)(size - 1)));
    return 0;
}

#ifdef STANDALONE
int main(int count, char **files) {
    static uint8_t input[1 << 20];
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(files[i], "rb");
        if (!file) {
            perror(files[i]);
            return 1;
        }
        LLVMFuzzerTestOneInput(input, fread(input, 1, sizeof input, file));
        fclose(file);
    }
    printf("amqp: %d inputs\n", count - 1);
    return 0;
}
#endif
