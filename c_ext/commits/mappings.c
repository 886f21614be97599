/* mappings.c - the durable mappings of the store and of its queues, as they are in memory (see
 * commits.h).
 *
 * No I/O. A change is prepared first: all that can fail is done then. Behind the append of its
 * frame it is taken over (H20). Keys keep the order in which they came.
 */
#include "commits/commits.h"

#include <errno.h>

/* ---- tables ---- */

static uint32_t hash_of(const uint8_t *scope, const uint8_t *key, uint32_t key_size) {
    return qi_crc32c(qi_crc32c(0, scope, QI_IDENTITY_SIZE), key, key_size);
}

static uint32_t place_of(const uint8_t *identity, uint32_t room) {
    return (uint32_t)qi_get64(identity) & (room - 1);
}

struct qi_scope *qi_data_scope(const struct qi_data *data, const uint8_t *identity) {
    if (data->scopes_room == 0)
        return NULL;
    struct qi_scope *scope = data->scopes[place_of(identity, data->scopes_room)];
    while (scope && memcmp(scope->identity, identity, QI_IDENTITY_SIZE) != 0)
        scope = scope->next;
    return scope;
}

/* As many places as there are scopes, at least. False: no memory. */
static bool has_scope_room(struct qi_data *data) {
    if (data->scopes_count < data->scopes_room)
        return true;
    uint32_t room = data->scopes_room ? 2 * data->scopes_room : 16;
    struct qi_scope **scopes = qi_calloc(room, sizeof *scopes);
    if (!scopes)
        return false;
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (struct qi_scope *scope = data->scopes[i], *next; scope; scope = next) {
            struct qi_scope **place = &scopes[place_of(scope->identity, room)];
            next = scope->next;
            scope->next = *place;
            *place = scope;
        }
    qi_free(data->scopes);
    data->scopes = scopes;
    data->scopes_room = room;
    return true;
}

/* The same for that many more entries. */
static bool has_entry_room(struct qi_data *data, uint32_t more) {
    uint32_t room = data->entries_room ? data->entries_room : 64;
    while (room < data->entries_count + more)
        room *= 2;
    if (room == data->entries_room)
        return true;
    struct qi_datum **entries = qi_calloc(room, sizeof *entries);
    if (!entries)
        return false;
    for (uint32_t i = 0; i < data->entries_room; i++)
        for (struct qi_datum *entry = data->entries[i], *next; entry; entry = next) {
            struct qi_datum **place = &entries[entry->hash & (room - 1)];
            next = entry->next;
            entry->next = *place;
            *place = entry;
        }
    qi_free(data->entries);
    data->entries = entries;
    data->entries_room = room;
    return true;
}

static struct qi_scope *scope_of(struct qi_data *data, const uint8_t *identity) {
    struct qi_scope *scope = qi_data_scope(data, identity);
    if (scope || !has_scope_room(data) || !(scope = qi_calloc(1, sizeof *scope)))
        return scope;
    struct qi_scope **place = &data->scopes[place_of(identity, data->scopes_room)];
    memcpy(scope->identity, identity, QI_IDENTITY_SIZE);
    scope->next = *place;
    *place = scope;
    data->scopes_count++;
    return scope;
}

/* Where the table says it is; at the end of its row, if it is not there. */
static struct qi_datum **find(const struct qi_data *data, const struct qi_scope *scope,
                              uint32_t hash, const uint8_t *key, uint32_t key_size) {
    struct qi_datum **at = &data->entries[hash & (data->entries_room - 1)];
    while (*at && ((*at)->hash != hash || (*at)->scope != scope || (*at)->key_size != key_size ||
                   memcmp((*at)->bytes, key, key_size) != 0))
        at = &(*at)->next;
    return at;
}

const struct qi_datum *qi_data_find(const struct qi_data *data, const uint8_t *scope,
                                    const uint8_t *key, uint32_t key_size) {
    const struct qi_scope *found = qi_data_scope(data, scope);
    return found && found->oldest ? *find(data, found, hash_of(scope, key, key_size), key, key_size)
                                  : NULL;
}

/* ---- entries as bytes ---- */

/* One of a DATA frame. */
struct written {
    const uint8_t *key, *value, *behind;
    uint32_t key_size, value_size; /* QI_DATA_REMOVED: there is none */
};

/* False: the bytes do not add up. */
static bool read_entry(const uint8_t *at, uint64_t left, struct written *entry) {
    if (left < QI_DATA_FIXED)
        return false;
    entry->key_size = qi_get16(at);
    entry->key = at + 2;
    if (entry->key_size == 0 || entry->key_size > left - QI_DATA_FIXED)
        return false;
    left -= QI_DATA_FIXED + entry->key_size;
    entry->value_size = qi_get32(entry->key + entry->key_size);
    entry->value = entry->key + entry->key_size + 4;
    uint32_t size = entry->value_size == QI_DATA_REMOVED ? 0 : entry->value_size;
    entry->behind = entry->value + (size <= left ? size : 0);
    return size <= left;
}

bool qi_data_is_sound(const uint8_t *entries, uint64_t size) {
    struct written entry;
    for (const uint8_t *at = entries, *end = entries + size; at < end; at = entry.behind)
        if (!read_entry(at, (uint64_t)(end - at), &entry))
            return false;
    return true;
}

uint8_t *qi_datum_write(const struct qi_datum *entry, uint8_t *at) {
    qi_put16(at, (uint16_t)entry->key_size);
    memcpy(at + 2, entry->bytes, entry->key_size);
    qi_put32(at + 2 + entry->key_size, entry->value_size);
    at += QI_DATA_FIXED + entry->key_size;
    memcpy(at, entry->bytes + entry->key_size, entry->value_size);
    return at + entry->value_size;
}

int qi_fail_data_size(uint64_t size) {
    return qi_fail(QI_E_ARGUMENT,
                   "one change of data has at most %u bytes of keys and values, this one has %llu: "
                   "change less at a time",
                   QI_DATA_MAX, (unsigned long long)size);
}

/* ---- changes ---- */

void qi_data_drop(struct qi_data_change *change) {
    for (struct qi_datum *entry = change->first, *next; entry; entry = next) {
        next = entry->newer;
        qi_free(entry);
    }
    change->first = change->last = NULL;
}

static struct qi_datum *make_entry(struct qi_scope *scope, const struct written *written) {
    uint32_t size = written->value_size == QI_DATA_REMOVED ? 0 : written->value_size;
    struct qi_datum *entry = qi_malloc(sizeof *entry + written->key_size + size);
    if (!entry)
        return NULL;
    *entry = (struct qi_datum){.scope = scope,
                               .hash = hash_of(scope->identity, written->key, written->key_size),
                               .value_size = written->value_size,
                               .key_size = written->key_size};
    memcpy(entry->bytes, written->key, written->key_size);
    memcpy(entry->bytes + written->key_size, written->value, size);
    return entry;
}

int qi_data_prepare(struct qi_data *data, const uint8_t *scope, const uint8_t *entries,
                    uint64_t size, struct qi_data_change *change) {
    uint32_t count = 0;
    struct written written = {0};
    *change = (struct qi_data_change){.scope = scope_of(data, scope)};
    if (!change->scope)
        return -ENOMEM;
    for (const uint8_t *at = entries, *end = entries + size; at < end; at = written.behind) {
        read_entry(at, (uint64_t)(end - at), &written); /* they are sound */
        struct qi_datum *entry = make_entry(change->scope, &written);
        if (!entry) {
            qi_data_drop(change);
            return -ENOMEM;
        }
        *(change->last ? &change->last->newer : &change->first) = entry;
        change->last = entry;
        count++;
    }
    if (has_entry_room(data, count))
        return 0;
    qi_data_drop(change);
    return -ENOMEM;
}

static void count_entry(struct qi_scope *scope, const struct qi_datum *entry, int by) {
    uint64_t *bytes = qi_is_engines(entry) ? &scope->hidden : &scope->bytes;
    *bytes += by > 0 ? qi_datum_size(entry) : -qi_datum_size(entry);
    scope->count += qi_is_engines(entry) ? 0u : (uint32_t)by;
}

static void unlink_entry(struct qi_data *data, struct qi_datum **at) {
    struct qi_datum *entry = *at;
    struct qi_scope *scope = entry->scope;
    *at = entry->next;
    *(entry->older ? &entry->older->newer : &scope->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &scope->newest) = entry->older;
    count_entry(scope, entry, -1);
    data->entries_count--;
    qi_free(entry);
}

/* In the place of `old`, if the key had a value; else behind all others. */
static void link_entry(struct qi_data *data, struct qi_datum **at, struct qi_datum *entry) {
    struct qi_scope *scope = entry->scope;
    struct qi_datum *old = *at;
    entry->older = old ? old->older : scope->newest;
    entry->newer = old ? old->newer : NULL;
    entry->next = old ? old->next : NULL;
    *at = entry;
    *(entry->older ? &entry->older->newer : &scope->oldest) = entry;
    *(entry->newer ? &entry->newer->older : &scope->newest) = entry;
    if (old)
        count_entry(scope, old, -1);
    count_entry(scope, entry, 1);
    data->entries_count += !old;
    qi_free(old);
}

void qi_data_take(struct qi_data *data, struct qi_data_change *change) {
    for (struct qi_datum *entry = change->first, *next; entry; entry = next) {
        next = entry->newer;
        struct qi_datum **at = find(data, entry->scope, entry->hash, entry->bytes, entry->key_size);
        if (entry->value_size != QI_DATA_REMOVED) {
            link_entry(data, at, entry);
            continue;
        }
        if (*at)
            unlink_entry(data, at);
        qi_free(entry);
    }
    change->first = change->last = NULL;
}

void qi_data_forget(struct qi_data *data, const uint8_t *identity) {
    struct qi_scope *scope = qi_data_scope(data, identity);
    while (scope && scope->oldest) {
        const struct qi_datum *entry = scope->oldest;
        unlink_entry(data, find(data, scope, entry->hash, entry->bytes, entry->key_size));
    }
    if (!scope)
        return;
    struct qi_scope **at = &data->scopes[place_of(identity, data->scopes_room)];
    while (*at != scope)
        at = &(*at)->next;
    *at = scope->next;
    data->scopes_count--;
    qi_free(scope);
}

void qi_data_free(struct qi_data *data) {
    for (uint32_t i = 0; i < data->entries_room; i++)
        for (struct qi_datum *entry = data->entries[i], *next; entry; entry = next) {
            next = entry->next;
            qi_free(entry);
        }
    for (uint32_t i = 0; i < data->scopes_room; i++)
        for (struct qi_scope *scope = data->scopes[i], *next; scope; scope = next) {
            next = scope->next;
            qi_free(scope);
        }
    qi_free(data->entries);
    qi_free(data->scopes);
    *data = (struct qi_data){0};
}
