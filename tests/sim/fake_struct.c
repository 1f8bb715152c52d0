/*
 * The libraries `struct` and `bit` of Redis' Lua, as far as a script can tell
 * them from the real ones. Results and errors are the same, and so are the
 * oddities of integers wider than a word.
 */
#include "tests/sim/fake_lua.h"

#include <ctype.h>
#include <limits.h>

#define INT_BYTES_MAX 32
#define ALIGN_MAX     8

struct header {
    bool big; /* endian */
    size_t align;
};

/* --- numbers as x86-64 cuts them ------------------------------------------ */

static int64_t
cut_signed(double number)
{
    if (number >= -9223372036854775808.0 && number < 9223372036854775808.0)
        return (int64_t)number;
    return INT64_MIN;
}

static uint64_t
cut_unsigned(double number)
{
    if (number < 0)
        return (uint64_t)cut_signed(number);
    if (number >= 18446744073709551616.0)
        return 0;
    if (number >= 9223372036854775808.0)
        return (uint64_t)cut_signed(number - 9223372036854775808.0) ^
               (uint64_t)1 << 63;
    return (uint64_t)cut_signed(number);
}

/* --- formats -------------------------------------------------------------- */

static size_t
read_size(lua_State *lua, const char **format, int otherwise)
{
    int value = 0;

    if (!isdigit((unsigned char)**format))
        return (size_t)otherwise;
    do {
        int digit = **format - '0';
        if (value > INT_MAX / 10 || value * 10 > INT_MAX - digit)
            luaL_error(lua, "integral size overflow");
        value = value * 10 + digit;
        (*format)++;
    } while (isdigit((unsigned char)**format));
    return (size_t)value;
}

static size_t
option_size(lua_State *lua, char option, const char **format)
{
    size_t size;

    switch (option) {
    case 'B':
    case 'b':
    case 'x':
        return 1;
    case 'H':
    case 'h':
        return sizeof(short);
    case 'L':
    case 'l':
    case 'T':
    case 'd':
        return 8;
    case 'f':
        return sizeof(float);
    case 'c':
        return read_size(lua, format, 1);
    case 'i':
    case 'I':
        size = read_size(lua, format, sizeof(int));
        if (size > INT_BYTES_MAX)
            luaL_error(lua, "integral size %d is larger than limit of %d",
                (int)size, INT_BYTES_MAX);
        return size;
    default:
        return 0;
    }
}

static size_t
padding(size_t at, const struct header *header, char option, size_t size)
{
    if (size == 0 || option == 'c')
        return 0;
    if (size > header->align)
        size = header->align;
    return (size - (at & (size - 1))) & (size - 1);
}

static void
control(lua_State *lua, char option, const char **format, struct header *header)
{
    size_t align;

    switch (option) {
    case ' ':
        return;
    case '>':
        header->big = true;
        return;
    case '<':
        header->big = false;
        return;
    case '!':
        align = read_size(lua, format, ALIGN_MAX);
        if (align == 0 || (align & (align - 1)) != 0)
            luaL_error(lua, "alignment %d is not a power of 2", (int)align);
        header->align = align;
        return;
    default:
        luaL_argerror(
            lua, 1, lua_pushfstring(lua, "invalid format option '%c'", option));
    }
}

static bool
is_integer(char option)
{
    return option != '\0' && strchr("bBhHlLTiI", option) != NULL;
}

/* --- struct.pack ---------------------------------------------------------- */

/* The bytes of a number lie in the order that was asked for. */
static void
add_bytes(luaL_Buffer *out, const char *bytes, size_t size, bool big)
{
    for (size_t i = 0; i < size; i++)
        luaL_addchar(out, bytes[big ? size - 1 - i : i]);
}

static void
pack_integer(lua_State *lua, luaL_Buffer *out, int arg, bool big, size_t size)
{
    uint64_t value = cut_unsigned(luaL_checknumber(lua, arg));
    char bytes[INT_BYTES_MAX];

    for (size_t i = 0; i < size; i++) {
        bytes[big ? size - 1 - i : i] = (char)(value & 0xff);
        value >>= 8;
    }
    luaL_addlstring(out, bytes, size);
}

/* Returns the size that it came to. */
static size_t
pack_string(lua_State *lua, luaL_Buffer *out, int arg, char option, size_t size)
{
    size_t len;
    const char *bytes = luaL_checklstring(lua, arg, &len);

    if (size == 0)
        size = len;
    luaL_argcheck(lua, len >= size, arg + 1, "string too short");
    luaL_addlstring(out, bytes, size);
    if (option == 's') {
        luaL_addchar(out, '\0');
        size++;
    }
    return size;
}

static int
struct_pack(lua_State *lua)
{
    luaL_Buffer out;
    const char *format = luaL_checkstring(lua, 1);
    struct header header = {.align = 1};
    size_t total = 0;
    int arg = 2;

    lua_pushnil(lua); /* arguments that are missing are nil */
    luaL_buffinit(lua, &out);
    while (*format != '\0') {
        char option = *format++;
        size_t size = option_size(lua, option, &format);
        size_t pad = padding(total, &header, option, size);
        total += pad;
        while (pad-- > 0)
            luaL_addchar(&out, '\0');
        if (is_integer(option)) {
            pack_integer(lua, &out, arg++, header.big, size);
        } else if (option == 'x') {
            luaL_addchar(&out, '\0');
        } else if (option == 'f') {
            float value = (float)luaL_checknumber(lua, arg++);
            add_bytes(&out, (const char *)&value, size, header.big);
        } else if (option == 'd') {
            double value = luaL_checknumber(lua, arg++);
            add_bytes(&out, (const char *)&value, size, header.big);
        } else if (option == 'c' || option == 's') {
            size = pack_string(lua, &out, arg++, option, size);
        } else {
            control(lua, option, &format, &header);
        }
        total += size;
    }
    luaL_pushresult(&out);
    return 1;
}

/* --- struct.unpack -------------------------------------------------------- */

static double
unpack_integer(const char *bytes, bool big, bool is_signed, size_t size)
{
    uint64_t value = 0;

    for (size_t i = 0; i < size; i++)
        value = value << 8 | (uint8_t)bytes[big ? i : size - 1 - i];
    if (!is_signed)
        return (double)value;
    /* The shift is taken modulo 64, as the processor does it. */
    uint64_t mask = ~(uint64_t)0 << ((size * 8 - 1) & 63);
    if ((value & mask) != 0)
        value |= mask;
    return (double)(int64_t)value;
}

static double
unpack_float(const char *bytes, char option, bool big, size_t size)
{
    char turned[8];
    float single;
    double number;

    for (size_t i = 0; i < size; i++)
        turned[i] = bytes[big ? size - 1 - i : i];
    if (option == 'f') {
        memcpy(&single, turned, sizeof(single));
        return single;
    }
    memcpy(&number, turned, sizeof(number));
    return number;
}

struct unpacker {
    const char *data;
    size_t len;
    size_t at;
    int results;
};

static void
check_room(lua_State *lua, const struct unpacker *unpacker, size_t size)
{
    luaL_argcheck(lua,
        size <= unpacker->len && unpacker->at <= unpacker->len - size, 2,
        "data string too short");
}

/* Pushes a string; returns how many bytes it took. */
static size_t
unpack_string(
    lua_State *lua, struct unpacker *unpacker, char option, size_t size)
{
    const char *from = unpacker->data + unpacker->at;

    if (option == 's') {
        const char *end = memchr(from, '\0', unpacker->len - unpacker->at);
        if (end == NULL)
            luaL_error(lua, "unfinished string in data");
        size = (size_t)(end - from);
        lua_pushlstring(lua, from, size);
        unpacker->results++;
        return size + 1;
    }
    if (size == 0) {
        if (unpacker->results == 0 || !lua_isnumber(lua, -1))
            luaL_error(lua, "format 'c0' needs a previous size");
        size = (size_t)cut_unsigned(lua_tonumber(lua, -1));
        lua_pop(lua, 1);
        unpacker->results--;
        check_room(lua, unpacker, size);
    }
    lua_pushlstring(lua, from, size);
    unpacker->results++;
    return size;
}

static int
struct_unpack(lua_State *lua)
{
    struct header header = {.align = 1};
    struct unpacker unpacker = {0};
    const char *format = luaL_checkstring(lua, 1);

    unpacker.data = luaL_checklstring(lua, 2, &unpacker.len);
    unpacker.at = (size_t)luaL_optinteger(lua, 3, 1);
    luaL_argcheck(lua, unpacker.at > 0, 3, "offset must be 1 or greater");
    unpacker.at--;
    while (*format != '\0') {
        char option = *format++;
        size_t size = option_size(lua, option, &format);
        unpacker.at += padding(unpacker.at, &header, option, size);
        check_room(lua, &unpacker, size);
        luaL_checkstack(lua, 2, "too many results");
        const char *from = unpacker.data + unpacker.at;
        if (is_integer(option)) {
            lua_pushnumber(lua, unpack_integer(from, header.big,
                                    islower((unsigned char)option), size));
            unpacker.results++;
        } else if (option == 'f' || option == 'd') {
            lua_pushnumber(lua, unpack_float(from, option, header.big, size));
            unpacker.results++;
        } else if (option == 'c' || option == 's') {
            size = unpack_string(lua, &unpacker, option, size);
        } else if (option != 'x') {
            control(lua, option, &format, &header);
        }
        unpacker.at += size;
    }
    lua_pushinteger(lua, (lua_Integer)unpacker.at + 1);
    return unpacker.results + 1;
}

static int
struct_size(lua_State *lua)
{
    struct header header = {.align = 1};
    const char *format = luaL_checkstring(lua, 1);
    size_t at = 0;

    while (*format != '\0') {
        char option = *format++;
        size_t size = option_size(lua, option, &format);
        at += padding(at, &header, option, size);
        if (option == 's')
            luaL_argerror(lua, 1, "option 's' has no fixed size");
        if (option == 'c' && size == 0)
            luaL_argerror(lua, 1, "option 'c0' has no fixed size");
        if (!isalnum((unsigned char)option))
            control(lua, option, &format, &header);
        at += size;
    }
    lua_pushinteger(lua, (lua_Integer)at);
    return 1;
}

void
engine_open_struct(lua_State *lua)
{
    static const luaL_Reg functions[] = {{"pack", struct_pack},
        {"unpack", struct_unpack}, {"size", struct_size}, {NULL, NULL}};

    lua_newtable(lua);
    luaL_register(lua, NULL, functions);
}

/* --- bit ------------------------------------------------------------------ */

/* An argument's lowest 32 bits, rounded to the even. */
static uint32_t
bit_arg(lua_State *lua, int index)
{
    double number = lua_tonumber(lua, index) + 6755399441055744.0;
    uint64_t raw;

    memcpy(&raw, &number, sizeof(raw));
    if ((uint32_t)raw == 0 && !lua_isnumber(lua, index))
        luaL_typerror(lua, index, "number");
    return (uint32_t)raw;
}

static int
bit_result(lua_State *lua, uint32_t bits)
{
    lua_pushnumber(lua, (double)(int32_t)bits);
    return 1;
}

static int
bit_tobit(lua_State *lua)
{
    return bit_result(lua, bit_arg(lua, 1));
}

static int
bit_bnot(lua_State *lua)
{
    return bit_result(lua, ~bit_arg(lua, 1));
}

static int
bit_band(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);

    for (int i = lua_gettop(lua); i > 1; i--)
        bits &= bit_arg(lua, i);
    return bit_result(lua, bits);
}

static int
bit_bor(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);

    for (int i = lua_gettop(lua); i > 1; i--)
        bits |= bit_arg(lua, i);
    return bit_result(lua, bits);
}

static int
bit_bxor(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);

    for (int i = lua_gettop(lua); i > 1; i--)
        bits ^= bit_arg(lua, i);
    return bit_result(lua, bits);
}

static int
bit_lshift(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);

    return bit_result(lua, bits << (bit_arg(lua, 2) & 31));
}

static int
bit_rshift(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);

    return bit_result(lua, bits >> (bit_arg(lua, 2) & 31));
}

static int
bit_arshift(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);
    uint32_t by = bit_arg(lua, 2) & 31;
    uint32_t sign = (bits >> 31) != 0 && by > 0 ? ~0U << (32 - by) : 0;

    return bit_result(lua, bits >> by | sign);
}

static int
bit_rol(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);
    uint32_t by = bit_arg(lua, 2) & 31;

    return bit_result(lua, bits << by | bits >> ((32 - by) & 31));
}

static int
bit_ror(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);
    uint32_t by = bit_arg(lua, 2) & 31;

    return bit_result(lua, bits >> by | bits << ((32 - by) & 31));
}

static int
bit_bswap(lua_State *lua)
{
    return bit_result(lua, __builtin_bswap32(bit_arg(lua, 1)));
}

static int
bit_tohex(lua_State *lua)
{
    uint32_t bits = bit_arg(lua, 1);
    uint32_t asked = lua_isnone(lua, 2) ? 8 : bit_arg(lua, 2);
    const char *digits = "0123456789abcdef";
    char out[8];

    if ((asked >> 31) != 0) {
        asked = -asked;
        digits = "0123456789ABCDEF";
    }
    size_t count = asked > 8 ? 8 : asked;
    for (size_t i = count; i > 0; i--) {
        out[i - 1] = digits[bits & 15];
        bits >>= 4;
    }
    lua_pushlstring(lua, out, count);
    return 1;
}

void
engine_open_bit(lua_State *lua)
{
    static const luaL_Reg functions[] = {{"tobit", bit_tobit},
        {"bnot", bit_bnot}, {"band", bit_band}, {"bor", bit_bor},
        {"bxor", bit_bxor}, {"lshift", bit_lshift}, {"rshift", bit_rshift},
        {"arshift", bit_arshift}, {"rol", bit_rol}, {"ror", bit_ror},
        {"bswap", bit_bswap}, {"tohex", bit_tohex}, {NULL, NULL}};

    lua_newtable(lua);
    luaL_register(lua, NULL, functions);
}
