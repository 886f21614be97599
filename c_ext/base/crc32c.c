/* CRC32C: pure functions of bytes. No I/O, no allocation, no state.
 *
 * A frame is 20-200 bytes, so what counts is the cost of a short input:
 *
 *  - The crc instruction takes 8 bytes and 3 cycles, but a new one can start every cycle. From
 *    INTERLEAVE_WORDS_MIN words on, the input is therefore cut into three streams A, B, C that
 *    advance together:
 *
 *        |--- n words: A ---|--- n words: B ---|--- n words and the rest: C ---| 1..8 bytes |
 *
 *    A CRC is a polynomial over GF(2), and "followed by k words" multiplies it by x^(64k). So the
 *    whole is A * x^(64 * words after A) + B * x^(64 * words after B) + C, for the price of two
 *    carry-less multiplications, which run while C finishes.
 *
 *  - A body is long. From WIDE_MIN bytes on, a processor that multiplies four pairs of 64 bits at
 *    once (VPCLMULQDQ with AVX-512) takes 256 bytes a turn: each 16 of them are multiplied by
 *    x^2048 and added to the 16 that lie 256 bytes further. At the end the sixteen are folded into
 *    one in the same way, and the CRC of that is the CRC of all. A copy is made on the way, of the
 *    very bytes that are in the registers.
 *
 *  - The last 1 to 8 bytes are one more instruction, not a loop: they are shifted to the end of a
 *    word whose leading zeros do not change a CRC of zero.
 *
 * Bits are reflected throughout, as everywhere with this CRC: the lowest bit is the highest
 * power. */
#include "base/base.h"

#include <errno.h>
#include <string.h>

#define COPY_PIECE 4096u

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#define STEPS "sse4.2,crc32,pclmul" /* sse4.2 may come without it */
#else
#define STEPS "sse4.2,pclmul"
#endif
#define HARDWARE __attribute__((target(STEPS)))
#define WIDE     __attribute__((target(STEPS ",avx512f,vpclmulqdq")))
#define WIDE_IS_PRESENT                                                                            \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&                  \
     HARDWARE_IS_PRESENT)
#define HARDWARE_IS_PRESENT (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
#define STEP(crc, word)     ((uint32_t)_mm_crc32_u64(crc, word))
#define MULTIPLY(a, b)                                                                             \
    ((uint64_t)_mm_cvtsi128_si64(                                                                  \
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(a)), _mm_cvtsi32_si128((int)(b)), 0)))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
#define HARDWARE_IS_PRESENT 1
#define STEP(crc, word)     __crc32cd(crc, word)
#if defined(__ARM_FEATURE_AES)
#include <arm_neon.h>
#define MULTIPLY(a, b) vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64(a, b)), 0)
#endif
#endif

/* One byte: the CRC is linear, so the entry for a byte is the XOR of the entries of its bits. */
#define ENTRY(i, b0, b1, b2, b3, b4, b5, b6, b7)                                                   \
    (((i) & 1) * b0) ^ (((i) >> 1 & 1) * b1) ^ (((i) >> 2 & 1) * b2) ^ (((i) >> 3 & 1) * b3) ^     \
        (((i) >> 4 & 1) * b4) ^ (((i) >> 5 & 1) * b5) ^ (((i) >> 6 & 1) * b6) ^ (((i) >> 7) * b7)
#define ENTRIES_4(i, ...)                                                                          \
    ENTRY((i), __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__),             \
        ENTRY((i) + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...)                                                                         \
    ENTRIES_4((i), __VA_ARGS__), ENTRIES_4((i) + 4, __VA_ARGS__), ENTRIES_4((i) + 8, __VA_ARGS__), \
        ENTRIES_4((i) + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...)                                                                         \
    ENTRIES_16((i), __VA_ARGS__), ENTRIES_16((i) + 16, __VA_ARGS__),                               \
        ENTRIES_16((i) + 32, __VA_ARGS__), ENTRIES_16((i) + 48, __VA_ARGS__)
#define BYTE_TABLE(...)                                                                            \
    {ENTRIES_64(0u, __VA_ARGS__), ENTRIES_64(64u, __VA_ARGS__), ENTRIES_64(128u, __VA_ARGS__),     \
     ENTRIES_64(192u, __VA_ARGS__)}

/* after[k][byte]: what a byte that k more bytes follow contributes. */
static const uint32_t after[8][256] = {
    BYTE_TABLE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc,
               0x82f63b78),
    BYTE_TABLE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604,
               0xfbc3faf9),
    BYTE_TABLE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9,
               0x8b277743),
    BYTE_TABLE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7,
               0x52a0c93f),
    BYTE_TABLE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae,
               0x6ea2d55c),
    BYTE_TABLE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb,
               0x1c08b7d6),
    BYTE_TABLE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a,
               0xf56e0ef4),
    BYTE_TABLE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32,
               0x34019664),
};

uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length) {
    const uint8_t *p = bytes;
    crc = ~crc;
    for (; length >= 8; length -= 8, p += 8) {
        uint32_t low =
            crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = after[7][low & 255] ^ after[6][low >> 8 & 255] ^ after[5][low >> 16 & 255] ^
              after[4][low >> 24] ^ after[3][p[4]] ^ after[2][p[5]] ^ after[1][p[6]] ^
              after[0][p[7]];
    }
    for (; length > 0; length--, p++) {
        crc = crc >> 8 ^ after[0][(crc ^ *p) & 255];
    }
    return ~crc;
}

#ifdef HARDWARE

static inline uint64_t load_8(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* These 1 to 7 bytes as a number. Two loads that may overlap instead of a loop. */
static inline uint64_t load_short(const uint8_t *p, size_t length) {
    if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, p, 4);
        memcpy(&last, p + length - 4, 4);
        return first | (uint64_t)last << 8 * (length - 4);
    }
    return p[0] | (uint32_t)p[length / 2] << 8 * (length / 2) |
           (uint32_t)p[length - 1] << 8 * (length - 1);
}

/* One step over the `length` (1..8) low bytes of `word`. Shifted to its top they are what the CRC
 * ends with; the zeros before them do nothing to a CRC of 0. Of the old CRC, the part that is
 * longer than the bytes passes by them. */
static inline HARDWARE uint32_t step_last(uint32_t crc, uint64_t word, size_t length) {
    uint64_t passing = (uint64_t)crc >> 4 * length >> 4 * length;
    return STEP(0, (word ^ crc) << 8 * (8 - length)) ^ (uint32_t)passing;
}

#ifdef MULTIPLY

#define INTERLEAVE_WORDS_MIN 12
#define STREAM_WORDS_MAX     64

/* shift[k] multiplies by x^(64k) when the product goes through one step: x^(64k - 33). The step
 * itself adds 32 and the reflected product one. */
static const uint32_t shift[2 * STREAM_WORDS_MAX + 1] = {
    0x00000000, 0x00000001, 0x493c7d27, 0xf20c0dfe, 0xba4fc28e, 0x3da6d0cb, 0xddc0152b, 0x1c291d04,
    0x9e4addf8, 0x740eef02, 0x39d3b296, 0x083a6eec, 0x0715ce53, 0xc49f4f67, 0x47db8317, 0x2ad91c30,
    0x0d3b6092, 0x6992cea2, 0xc96cfdc0, 0x7e908048, 0x878a92a7, 0x1b3d8f29, 0xdaece73e, 0xf1d0f55e,
    0xab7aff2a, 0xa87ab8a8, 0x2162d385, 0x8462d800, 0x83348832, 0x71d111a8, 0x299847d5, 0xffd852c6,
    0xb9e02b86, 0xdcb17aa4, 0x18b33a4e, 0xf37c5aee, 0xb6dd949b, 0x6051d5a2, 0x78d9ccb7, 0x18b0d4ff,
    0xbac2fd7b, 0x21f3d99c, 0xa60ce07b, 0x8f158014, 0xce7f39f4, 0xa00457f7, 0x61d82e56, 0x8d6d2c43,
    0xd270f1a2, 0x00ac29cf, 0xc619809d, 0xe9adf796, 0x2b3cac5d, 0x96638b34, 0x65863b64, 0xe0e9f351,
    0x1b03397f, 0x9af01f2d, 0xebb883bd, 0x2cff42cf, 0xb3e32c28, 0x88f25a3a, 0x064f7f26, 0x4e36f0b0,
    0xdd7e3b0c, 0xbd6f81f8, 0xf285651c, 0x91c9bd4b, 0x10746f3c, 0x885f087b, 0xc7a68855, 0x4c144932,
    0x271d9844, 0x52148f02, 0x8e766a0c, 0xa3c6f37a, 0x93a5f730, 0xd7c0557f, 0x6cb08e5c, 0x63ded06a,
    0x6b749fb2, 0x4d56973c, 0x1393e203, 0x9669c9df, 0xcec3662e, 0xe417f38a, 0x96c515bb, 0x4b9e0f71,
    0xe6fc4e6a, 0xd104b8fc, 0x8227bb8a, 0x5b397730, 0xb0cd4768, 0xe78eb416, 0x39c7ff35, 0x61ff0e01,
    0xd7a4825c, 0x8d96551c, 0x0ab3844b, 0x0bf80dd2, 0x0167d312, 0x8821abed, 0xf6076544, 0x6a45d2b2,
    0x26f6a60a, 0xd8d26619, 0xa741c1bf, 0xde87806c, 0x98d8d9cb, 0x14338754, 0x49c3cc9c, 0x5bd2011f,
    0x68bce87a, 0xdd07448e, 0x57a3d037, 0xdde8f5b9, 0x6956fc3b, 0xa3e3e02c, 0x42d98888, 0xd73c7bea,
    0x3771e98f, 0x80ff0093, 0xb42ae3d9, 0x8fe4c34d, 0x2178513a, 0xdf99fc11, 0xe0ac139e, 0x6c23e841,
    0x170076fa,
};

/* Advance over `words` words, at most 3 * STREAM_WORDS_MAX, in three streams. */
static inline HARDWARE uint32_t step_three_streams(uint32_t crc, const uint8_t *p, size_t words) {
    size_t n = words / 3;
    const uint8_t *pb = p + 8 * n, *pc = pb + 8 * n, *end = p + 8 * words;
    uint32_t a = crc, b = 0, c = 0;
    for (const uint8_t *a_end = pb; p < a_end; p += 8, pb += 8, pc += 8) {
        a = STEP(a, load_8(p));
        b = STEP(b, load_8(pb));
        c = STEP(c, load_8(pc));
    }
    for (; pc < end; pc += 8) {
        c = STEP(c, load_8(pc));
    }
    return STEP(0, MULTIPLY(a, shift[words - n]) ^ MULTIPLY(b, shift[words - 2 * n])) ^ c;
}

#endif

static HARDWARE uint32_t crc32c_hardware(uint32_t crc, const uint8_t *p, size_t length) {
    crc = ~crc;
    if (length < 8) {
        return length == 0 ? ~crc : ~step_last(crc, load_short(p, length), length);
    }
    const uint8_t *last = p + length - 8;
    size_t words = (length - 1) / 8; /* Leaves 1..8 bytes. */
#ifdef MULTIPLY
    while (words >= INTERLEAVE_WORDS_MIN) {
        size_t now = words < 3 * STREAM_WORDS_MAX ? words : 3 * STREAM_WORDS_MAX;
        crc = step_three_streams(crc, p, now);
        p += 8 * now;
        words -= now;
    }
#endif
    for (; words > 0; words--, p += 8) {
        crc = STEP(crc, load_8(p));
    }
    size_t left = (size_t)(last + 8 - p);
    return ~step_last(crc, load_8(last) >> 8 * (8 - left), left);
}

#ifdef WIDE

#define WIDE_MIN   512u /* shorter ones do not earn the sixteen folds at the end */
#define WIDE_BLOCK 256u

/* x times x^(64 * words), as two products, and what is there. */
#define FOLD_FACTORS(words) (long long)shift[words], (long long)shift[(words) + 1]
static inline WIDE __m512i fold_64(__m512i x, __m512i factors, __m512i there) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, factors, 0x00),
                                     _mm512_clmulepi64_epi128(x, factors, 0x11), there, 0x96);
}
static inline WIDE __m128i fold_16(__m128i x, __m128i factors, __m128i there) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, factors, 0x00),
                                       _mm_clmulepi64_si128(x, factors, 0x11)),
                         there);
}

/* Advance over `blocks` blocks, at least one, and copy them to `to` unless that is NULL. */
static inline __attribute__((always_inline)) WIDE uint32_t step_wide(uint32_t crc, uint8_t *to,
                                                                     const uint8_t *p,
                                                                     size_t blocks) {
    const __m512i far = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_FACTORS(32)));
    const __m512i near = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_FACTORS(8)));
    const __m128i next = _mm_set_epi64x(FOLD_FACTORS(2));
    __m512i sum[4], word[4];
    for (int i = 0; i < 4; i++) {
        sum[i] = _mm512_loadu_si512(p + 64 * i);
        if (to)
            _mm512_storeu_si512(to + 64 * i, sum[i]);
    }
    sum[0] = _mm512_xor_si512(sum[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    while (--blocks > 0) {
        p += WIDE_BLOCK;
        to = to ? to + WIDE_BLOCK : NULL;
        for (int i = 0; i < 4; i++) {
            word[i] = _mm512_loadu_si512(p + 64 * i);
            if (to)
                _mm512_storeu_si512(to + 64 * i, word[i]);
            sum[i] = fold_64(sum[i], far, word[i]);
        }
    }
    __m512i all = sum[0];
    for (int i = 1; i < 4; i++)
        all = fold_64(all, near, sum[i]);
    __m128i last = fold_16(_mm512_castsi512_si128(all), next, _mm512_extracti32x4_epi32(all, 1));
    last = fold_16(last, next, _mm512_extracti32x4_epi32(all, 2));
    last = fold_16(last, next, _mm512_extracti32x4_epi32(all, 3));
    crc = STEP(0, (uint64_t)_mm_cvtsi128_si64(last));
    return STEP(crc, (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(last, last)));
}

static WIDE uint32_t crc32c_wide(uint32_t crc, const uint8_t *p, size_t length) {
    size_t whole = length / WIDE_BLOCK * WIDE_BLOCK;
    crc = ~step_wide(~crc, NULL, p, length / WIDE_BLOCK);
    return crc32c_hardware(crc, p + whole, length - whole);
}

static WIDE uint32_t copy_wide(uint32_t crc, uint8_t *to, const uint8_t *p, size_t length) {
    size_t whole = length / WIDE_BLOCK * WIDE_BLOCK;
    crc = ~step_wide(~crc, to, p, length / WIDE_BLOCK);
    memcpy(to + whole, p + whole, length - whole);
    return crc32c_hardware(crc, to + whole, length - whole);
}

#endif

#endif

uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length) {
#ifdef WIDE
    if (length >= WIDE_MIN && WIDE_IS_PRESENT)
        return crc32c_wide(crc, bytes, length);
#endif
#ifdef HARDWARE
    if (HARDWARE_IS_PRESENT) { /* A load and a test of what the program's start found out. */
        return crc32c_hardware(crc, bytes, length);
    }
#endif
    return qi_crc32c_portable(crc, bytes, length);
}

uint32_t qi_crc32c_copy(uint32_t crc, void *to, const void *bytes, size_t length) {
#ifdef WIDE
    if (length >= WIDE_MIN && WIDE_IS_PRESENT)
        return copy_wide(crc, to, bytes, length);
#endif
    /* In pieces that are still in the nearest cache when their checksum is made. */
    for (size_t done = 0, size; done < length; done += size) {
        size = length - done < COPY_PIECE ? length - done : COPY_PIECE;
        memcpy((uint8_t *)to + done, (const uint8_t *)bytes + done, size);
        crc = qi_crc32c(crc, (const uint8_t *)to + done, size);
    }
    return crc;
}

bool qi_crc32c_by(uint32_t way, uint32_t *crc, void *to, const void *bytes, size_t length) {
#ifdef WIDE
    if (way == 2 && WIDE_IS_PRESENT && length >= WIDE_BLOCK) {
        *crc = to ? copy_wide(*crc, to, bytes, length) : crc32c_wide(*crc, bytes, length);
        return true;
    }
#endif
    if (to)
        memcpy(to, bytes, length);
#ifdef HARDWARE
    if (way == 1 && HARDWARE_IS_PRESENT) {
        *crc = crc32c_hardware(*crc, bytes, length);
        return true;
    }
#endif
    if (way == 0)
        *crc = qi_crc32c_portable(*crc, bytes, length);
    return way == 0;
}

/* Two polynomials, modulo that of the CRC; the highest bit is the one without x. */
static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return product;
}

/* A CRC is linear: what came before, shifted by as many bits, and the CRC of the bytes alone. The
 * shift is taken back with powers of 1 / x^8. */
uint32_t qi_crc32c_before(uint32_t crc, const void *bytes, size_t length) {
    uint32_t shifted = ~crc ^ ~qi_crc32c(~UINT32_C(0), bytes, length);
    uint32_t power = UINT32_C(0x05ec76f1); /* 1 / x */
    for (int i = 0; i < 3; i++)
        power = times(power, power);
    for (; length > 0; length >>= 1, power = times(power, power))
        if (length & 1)
            shifted = times(shifted, power);
    return ~shifted;
}
