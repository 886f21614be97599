/* rabbitmq_message.c - where the parts of a RabbitMQ message are in its Erlang term.
 *
 * Rules of this file: no I/O, no allocation, no recursion; a length is compared with what is left
 * before it is used. It takes the two shapes that nearly all messages have, in whatever encoding of
 * atoms, tuples and lists, and refuses the rest, which Python reads value by value, to say what it
 * is.
 */
#include "foreign/foreign.h"

#include "foreign/cursor.h"

enum { CLASS_BASIC = 60 };

/* {content, 60, none, Raw, Protocol, Fragments}, or {content, 60, {'P_basic', ...}, none, Protocol,
 * Fragments}. */
static bool content(struct cursor *at, qi_rabbit_message *message) {
    if (!tuple(at, 6) || !atom(at, "content") || !byte_is(at, 'a') || !byte_is(at, CLASS_BASIC))
        return false;
    if (atom(at, "none")) {
        if (!binary(at, &message->properties, &message->properties_size))
            return false;
    } else {
        message->decoded = (uint32_t)at->pos;
        if (!value(at) || !atom(at, "none"))
            return false;
    }
    return (atom(at, "rabbit_framing_amqp_0_9_1") || atom(at, "none")) &&
           binaries(at, &message->fragment, &message->fragment_size, &message->fragment_count);
}

static bool boolean(struct cursor *at, uint32_t *answer) {
    *answer = atom(at, "true");
    return *answer || atom(at, "false");
}

static bool basic_message(struct cursor *at, qi_rabbit_message *message) {
    uint32_t ignored, also_ignored;
    return tuple(at, 6) && atom(at, "basic_message") && tuple(at, 4) && atom(at, "resource") &&
           binary(at, &ignored, &also_ignored) && atom(at, "exchange") &&
           binary(at, &message->exchange, &message->exchange_size) &&
           binaries(at, &message->key, &message->key_size, &message->key_count) &&
           content(at, message) && binary(at, &message->msg_id, &message->msg_id_size) &&
           boolean(at, &message->persistent);
}

/* A note that changes what a consumer gets of the message: deaths, a header that the broker added,
 * an expiry that is off. */
static bool changes_properties(struct cursor *at) {
    struct cursor ahead = *at;
    bool is_header = left(at) && at->data[at->pos] == 'm';
    return is_header || atom(&ahead, "deaths") ||
           (atom(&ahead, "ttl") && atom(&ahead, "undefined"));
}

/* {mc, mc_amqpl, Content, #{x => Exchange, rk => Keys, id => Id, d => false if it is transient,
 * ...}} */
static bool container(struct cursor *at, qi_rabbit_message *message) {
    if (!tuple(at, 4) || !atom(at, "mc") || !atom(at, "mc_amqpl") || !content(at, message))
        return false;
    if (!byte_is(at, 't') || left(at) < 4)
        return false;
    uint32_t pairs = qi_get32(at->data + at->pos);
    at->pos += 4;
    bool has_exchange = false, has_keys = false, has_id = false, has_d = false;
    message->persistent = 1;
    for (uint32_t i = 0; i < pairs; i++) {
        bool *seen = NULL, fits;
        if (atom(at, "x")) {
            seen = &has_exchange;
            fits = binary(at, &message->exchange, &message->exchange_size);
        } else if (atom(at, "rk")) {
            seen = &has_keys;
            fits = binaries(at, &message->key, &message->key_size, &message->key_count);
        } else if (atom(at, "id")) {
            seen = &has_id;
            fits = binary(at, &message->msg_id, &message->msg_id_size);
        } else if (atom(at, "d")) {
            seen = &has_d;
            fits = boolean(at, &message->persistent);
        } else {
            fits = !changes_properties(at) && value(at) && value(at);
        }
        if (!fits || (seen && *seen))
            return false;
        if (seen)
            *seen = true;
    }
    return has_exchange && has_keys;
}

bool qi_rabbit_read_message(const void *data, size_t size, qi_rabbit_message *message) {
    struct cursor start = {data, size, 0};
    if (size > QI_TERM_BYTES_MAX || !byte_is(&start, 131))
        return false;
    for (int shape = 0; shape < 2; shape++) {
        struct cursor at = start;
        *message = (qi_rabbit_message){0};
        if ((shape == 0 ? basic_message(&at, message) : container(&at, message)) && !left(&at))
            return true;
    }
    return false;
}
