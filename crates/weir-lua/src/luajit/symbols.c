/* Functions of nginx's that libraries look for with ffi.C; what they do is symbols.rs's. */
#include <stddef.h>
#include <stdint.h>

/* Found by the linker alone: a library that has Lua inside does not export them, however it is optimised. */
#pragma GCC visibility push(hidden)
uintptr_t weir_lua_escape_uri(unsigned char *to, const unsigned char *from, size_t size, uintptr_t kind);
intptr_t weir_lua_number(const unsigned char *line, size_t length, uint32_t radix);
intptr_t weir_lua_parse_time(const unsigned char *line, size_t length, uintptr_t seconds);
#pragma GCC visibility pop

/* Without anywhere to write the number of bytes that are escaped, else where what was written ends. */
uintptr_t ngx_escape_uri(unsigned char *to, unsigned char *from, size_t size, uintptr_t kind)
{
    return weir_lua_escape_uri(to, from, size, kind);
}

/* Each byte as two lower-case digits; where they end. */
unsigned char *ngx_hex_dump(unsigned char *to, unsigned char *from, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    while (size--) {
        *to++ = digits[*from >> 4];
        *to++ = digits[*from++ & 15];
    }
    return to;
}

/* The number that a text of digits is; -1 for any other text, and where it is too large. */
intptr_t ngx_atoi(unsigned char *line, size_t length)
{
    return weir_lua_number(line, length, 10);
}

intptr_t ngx_hextoi(unsigned char *line, size_t length)
{
    return weir_lua_number(line, length, 16);
}

struct text {
    size_t length;
    unsigned char *bytes;
};

/* A time as in configurations, in milliseconds or seconds; -1 for any other text. */
intptr_t ngx_parse_time(struct text *line, uintptr_t seconds)
{
    return weir_lua_parse_time(line->bytes, line->length, seconds);
}

/* MurmurHash2 of 32 bits, seeded with 0: words of four bytes, the lowest first, then what is left. */
uint32_t ngx_murmur_hash2(unsigned char *data, size_t length)
{
    const uint32_t factor = 0x5bd1e995;
    uint32_t hash = (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= factor;
        word ^= word >> 24;
        hash = hash * factor ^ word * factor;
    }
    if (length) {
        uint32_t rest = 0;
        while (length--)
            rest = rest << 8 | data[length];
        hash = (hash ^ rest) * factor;
    }
    hash ^= hash >> 13;
    hash *= factor;
    return hash ^ hash >> 15;
}

/* The program's arguments, as the C library gives them to constructors; libraries want the path of the server. */
int ngx_argc;
char **ngx_argv;

__attribute__((constructor)) static void keep_arguments(int argc, char **argv)
{
    ngx_argc = argc;
    ngx_argv = argv;
}

/* Called once, so that the linker has a reason to take this file. */
void weir_lua_symbols(void) {}
