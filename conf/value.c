/*
 * Values from text and to text, with a parser and a printer for each type.
 *
 * A value is exactly right or refused: no blanks around it, no sign, no leading
 * zero (octal in YAML 1.1), no unit in another spelling. Unused bytes of texts
 * and lists are zero, so that equal configurations are equal bytes.
 */
#include "conf/value.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#define QUOTE_BYTES   80 /* of a value that is shown in an error */
#define UNIX_PATH_MAX (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)

/* The room for a parser's error. */
struct why {
    char *out; /* ref */
    size_t bytes;
    bool hidden; /* the value may be a secret: the error must not show it */
};

typedef bool parse_value(
    const struct key *key, struct text text, void *field, struct why why);
typedef void print_value(const struct key *key, const void *field, FILE *out);

struct unit {
    const char *name; /* NULL ends the list */
    uint64_t factor;
};

static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static const struct unit size_units[] = {
    {"", 1},
    {"KiB", 1024},
    {"MiB", 1024 * 1024},
    {"GiB", 1024 * 1024 * 1024},
    {NULL, 0},
};

/* A number alone is refused, since its unit would be a guess. */
static const struct unit duration_units[] = {
    {"ms", 1},
    {"s", 1000},
    {"m", 60 * 1000},
    {"h", 60 * 60 * 1000},
    {NULL, 0},
};

static bool
refuse(struct why why, struct text text, const char *reason)
{
    char quoted[QUOTE_BYTES];

    if (why.hidden)
        snprintf(why.out, why.bytes, "%s", reason);
    else
        snprintf(why.out, why.bytes, "%s: %s",
            log_quote(quoted, sizeof(quoted), text), reason);
    return false;
}

/* Numbers */

static const struct unit *
units_of(enum key_type type)
{
    if (type == KEY_SIZE)
        return size_units;
    if (type == KEY_DURATION || type == KEY_SECONDS)
        return duration_units;
    return no_units;
}

static const char *
number_expected(enum key_type type)
{
    if (type == KEY_SIZE)
        return "a size expected, such as 4096, 64KiB, 1MiB or 1GiB";
    if (type == KEY_DURATION || type == KEY_SECONDS)
        return "a duration expected, such as 1500ms, 30s, 5m or 1h";
    return "a whole number expected";
}

/* Reads a number. Above 64 bits it is UINT64_MAX, which no range allows. Zero
 * needs no unit. */
static bool
number_read(struct text text, const struct unit *units, uint64_t *out)
{
    size_t digits = 0;
    struct text rest;

    while (
        digits < text.len && text.at[digits] >= '0' && text.at[digits] <= '9')
        digits++;
    if (digits == 0 || (digits > 1 && text.at[0] == '0'))
        return false;
    rest = text_make(text.at + digits, text.len - digits);
    if (text_equal(text, TEXT("0")))
        rest = text_from(units->name);
    while (units->name != NULL && !text_equal(rest, text_from(units->name)))
        units++;
    if (units->name == NULL)
        return false;
    text.len = digits;
    if (text_to_u64(text, UINT64_MAX / units->factor, out))
        *out *= units->factor;
    else
        *out = UINT64_MAX;
    return true;
}

const char *
value_number_text(enum key_type type, uint64_t number, char *out)
{
    const struct unit *units = units_of(type);
    const struct unit *best = units;

    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (number != 0 && number % unit->factor == 0)
            best = unit;
    }
    snprintf(out, VALUE_TEXT_BYTES, "%" PRIu64 "%s", number / best->factor,
        number == 0 && units == duration_units ? "s" : best->name);
    return out;
}

static bool
refuse_number(const struct key *key, struct text text, struct why why)
{
    char reason[96];
    uint64_t number;

    if (units_of(key->type) != duration_units ||
        !text_to_u64(text, UINT64_MAX, &number))
        return refuse(why, text, number_expected(key->type));
    snprintf(reason, sizeof(reason),
        "a duration needs a unit: write %" PRIu64 "ms, or s, m, h", number);
    return refuse(why, text, reason);
}

static bool
number_parse(
    const struct key *key, struct text text, struct why why, uint64_t *out)
{
    char reason[3 * VALUE_TEXT_BYTES];
    char min[VALUE_TEXT_BYTES];
    char max[VALUE_TEXT_BYTES];

    if (!number_read(text, units_of(key->type), out))
        return refuse_number(key, text, why);
    if (*out >= key->min && *out <= key->max)
        return true;
    snprintf(reason, sizeof(reason), "out of range, %s to %s expected",
        value_number_text(key->type, key->min, min),
        value_number_text(key->type, key->max, max));
    return refuse(why, text, reason);
}

static bool
count_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    uint64_t number;

    require(key->max <= UINT32_MAX);
    if (!number_parse(key, text, why, &number))
        return false;
    *(uint32_t *)field = (uint32_t)number;
    return true;
}

static bool
long_parse(const struct key *key, struct text text, void *field, struct why why)
{
    require(key->bytes == sizeof(uint64_t));
    return number_parse(key, text, why, field);
}

static bool
seconds_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    uint64_t number;

    require(key->bytes == sizeof(number));
    if (!number_parse(key, text, why, &number))
        return false;
    if (number % 1000 != 0)
        return refuse(why, text, "whole seconds expected");
    *(uint64_t *)field = number;
    return true;
}

static void
count_print(const struct key *key, const void *field, FILE *out)
{
    (void)key;
    fprintf(out, "%" PRIu32, *(const uint32_t *)field);
}

static void
long_print(const struct key *key, const void *field, FILE *out)
{
    char text[VALUE_TEXT_BYTES];

    fputs(value_number_text(key->type, *(const uint64_t *)field, text), out);
}

/* Words */

static const struct key_word *
word_parse(const struct key *key, struct text text, struct why why)
{
    char reason[128];
    const struct key_word *found = key->words;
    size_t len;

    while (found->name != NULL && !text_equal(text, text_from(found->name)))
        found++;
    if (found->name != NULL)
        return found;
    len = (size_t)snprintf(reason, sizeof(reason), "not known; expected");
    for (const struct key_word *word = key->words; word->name != NULL; word++) {
        len += (size_t)snprintf(reason + len, sizeof(reason) - len, "%s %s",
            word == key->words ? "" : " or", word->name);
        require(len < sizeof(reason));
    }
    refuse(why, text, reason);
    return NULL;
}

static bool
choice_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    const struct key_word *word = word_parse(key, text, why);

    /* An enum without negative values is stored as an unsigned int. */
    require(key->bytes == sizeof(word->value));
    if (word == NULL)
        return false;
    memcpy(field, &word->value, key->bytes);
    return true;
}

static void
choice_print(const struct key *key, const void *field, FILE *out)
{
    const struct key_word *word = key->words;
    unsigned value;

    memcpy(&value, field, sizeof(value));
    while (word->name != NULL && word->value != value)
        word++;
    require(word->name != NULL);
    fputs(word->name, out);
}

static bool
named_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    const struct key_word *word = word_parse(key, text, why);

    if (word == NULL)
        return false;
    require(strlen(word->name) < key->bytes);
    memcpy(field, word->name, strlen(word->name));
    return true;
}

/* Text */

static bool
is_control(char byte)
{
    return (unsigned char)byte < 0x20 || byte == 0x7f;
}

static bool
text_store(const struct key *key, struct text text, void *field, struct why why)
{
    char reason[VALUE_TEXT_BYTES + 32];

    require(key->bytes > 1 && ((char *)field)[0] == '\0'); /* it is cleared */
    if (text.len < key->bytes) {
        memcpy(field, text.at, text.len);
        return true;
    }
    snprintf(reason, sizeof(reason), "longer than %zu bytes", key->bytes - 1);
    return refuse(why, text, reason);
}

static bool
prefix_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    /* No braces: they would choose another slot than the lock's name does. */
    if (text.len == 0 || !address_is_plain(text, "_.:-"))
        return refuse(
            why, text, "1 to 32 letters, digits or any of _.:- expected");
    return text_store(key, text, field, why);
}

/* The text is a label of metrics, so no byte of it may need escaping. */
static bool
namespace_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    for (size_t i = 0; i < text.len; i++) {
        char at = text.at[i];
        if (at <= ' ' || at > '~' || at == '"' || at == '\\')
            return refuse(why, text,
                "1 to 64 printable characters of ASCII expected, neither "
                "blank, quote nor backslash");
    }
    return text_store(key, text, field, why);
}

static bool
is_pem(struct text text)
{
    return text_starts_with(text, TEXT("-----BEGIN "));
}

static bool
file_parse(const struct key *key, struct text text, void *field, struct why why)
{
    if (is_pem(text))
        return refuse(
            why, text, "the name of a file is expected, not its content");
    for (size_t i = 0; i < text.len; i++) {
        if (is_control(text.at[i]))
            return refuse(why, text, "has a control character");
    }
    return text_store(key, text, field, why);
}

static bool
user_parse(const struct key *key, struct text text, void *field, struct why why)
{
    if (text.len > 0 && memchr(text.at, ' ', text.len) != NULL)
        return refuse(why, text, "has a blank");
    return file_parse(key, text, field, why);
}

/* The UTF-8 character at *at, which moves past it. A byte that begins none is
 * one character. */
static uint32_t
character_next(const char **at)
{
    unsigned char first = (unsigned char)*(*at)++;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    uint32_t character = more == 0 ? first : first & (0x3fu >> more);

    for (; more > 0 && ((unsigned char)**at & 0xc0) == 0x80; more--)
        character = character << 6 | ((unsigned char)*(*at)++ & 0x3fu);
    return character;
}

/* Escapes all characters beyond ASCII: YAML takes some of them for line ends
 * and refuses others. */
static void
quoted_print(const char *text, FILE *out)
{
    fputc('"', out);
    while (*text != '\0') {
        uint32_t character = character_next(&text);

        if (character == '"' || character == '\\')
            fprintf(out, "\\%c", (char)character);
        else if (character < 0x80 && !is_control((char)character))
            fputc((char)character, out);
        else
            fprintf(out, "\\U%08" PRIX32, character);
    }
    fputc('"', out);
}

static void
text_print(const struct key *key, const void *field, FILE *out)
{
    (void)key;
    quoted_print(field, out);
}

static void
named_print(const struct key *key, const void *field, FILE *out)
{
    (void)key;
    fputs(field, out);
}

/* Addresses */

/* An IPv6 address has no brackets here, since no port follows. */
static bool
host_parse(const struct key *key, struct text text, void *field, struct why why)
{
    char host[sizeof(((struct config_address *)NULL)->host)];
    const char *reason = NULL;

    if (text.len >= sizeof(host))
        return text_store(key, text, field, why);
    if (text.len > 0)
        memcpy(host, text.at, text.len);
    host[text.len] = '\0';
    if (strlen(host) != text.len)
        reason = address_host_expected;
    else if (text.len > 0)
        reason = address_check_host(host);
    if (reason != NULL)
        return refuse(why, text, reason);
    return text_store(key, text, field, why);
}

/* `text` is a URL, or has a user before its host. */
static bool
refuse_url(const struct key *key, struct text text, struct why why)
{
    char reason[QUOTE_BYTES + 160];
    char shown[QUOTE_BYTES] = "HOST:PORT";
    struct config_address address = {.port = 0};
    bool nodes = key->type == KEY_NODES;
    bool user = memchr(text.at, '@', text.len) != NULL;
    bool tls = text_starts_with(text, TEXT("rediss:"));
    struct text rest = text;

    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] == '@' ||
            (!user && i >= 2 && memcmp(text.at + i - 2, "://", 3) == 0))
            rest = text_make(text.at + i + 1, text.len - i - 1);
    for (size_t i = 0; i < rest.len; i++)
        if (rest.at[i] == '/' || rest.at[i] == '?')
            rest.len = i;
    if (address_read(rest, 1, &address) == NULL)
        (void)config_address_text(&address, shown, sizeof(shown));
    snprintf(reason, sizeof(reason), "a URL is not supported: write %s%s%s",
        shown,
        nodes && user
            ? "; the password goes into the file of redis.password_file"
            : "",
        nodes && tls ? "; redis.tls.ca turns TLS on" : "");
    return refuse(why, text, reason);
}

static const char *
path_read(struct text text, struct config_address *out)
{
    if (text.len == 0 || memchr(text.at, '/', text.len) == NULL)
        return "a path with a slash expected, such as "
               "/run/holdfast/holdfast.sock";
    for (size_t i = 0; i < text.len; i++) {
        if (is_control(text.at[i]))
            return "has a control character";
    }
    if (text.len > UNIX_PATH_MAX)
        return "longer than a socket's path may be, 107 bytes";
    memcpy(out->host, text.at, text.len);
    return NULL;
}

static bool
refuse_length(const struct key *key, struct text text, struct why why)
{
    char reason[VALUE_TEXT_BYTES + 32];

    snprintf(
        reason, sizeof(reason), "at most %" PRIu64 " values allowed", key->max);
    return refuse(why, text, reason);
}

/*
 * Whether the list has the address. Port 0 never counts: it is any free port.
 */
static bool
is_listed(const struct config_list *list, const struct config_address *address)
{
    bool path = strchr(address->host, '/') != NULL;

    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->item[i].host, address->host) == 0 &&
            list->item[i].port == address->port && (path || address->port != 0))
            return true;
    }
    return false;
}

static bool
list_parse(const struct key *key, struct text text, void *field, struct why why)
{
    struct config_list *list = field;
    struct config_address address;
    const char *reason;

    if (why.hidden && address_is_url(text))
        return refuse_url(key, text, why);
    memset(&address, 0, sizeof(address));
    if (key->type == KEY_PATHS)
        reason = path_read(text, &address);
    else
        reason = address_read(text, key->type == KEY_NODES ? 1 : 0, &address);
    if (reason == NULL && is_listed(list, &address))
        reason = "listed twice";
    if (reason != NULL)
        return refuse(why, text, reason);
    if (list->count >= key->max)
        return refuse_length(key, text, why);
    require(list->count < CONFIG_NODES_MAX);
    memcpy(&list->item[list->count++], &address, sizeof(address));
    return true;
}

static bool
words_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    struct config_list *list = field;

    if (text.len >= sizeof(list->item[0].host))
        return refuse(why, text, "longer than 255 bytes");
    if (text.len > 0 && memchr(text.at, '\0', text.len) != NULL)
        return refuse(why, text, "has a NUL in it");
    if (list->count >= key->max)
        return refuse_length(key, text, why);
    require(list->count < CONFIG_NODES_MAX);
    if (text.len > 0)
        memcpy(list->item[list->count].host, text.at, text.len);
    list->count++;
    return true;
}

static bool
list_one_parse(
    const struct key *key, struct text text, void *field, struct why why)
{
    if (text.len == 0 || text_equal(text, TEXT("none")))
        return true;
    return list_parse(key, text, field, why);
}

static void
address_print(const struct config_address *address, FILE *out)
{
    char text[sizeof(address->host) + sizeof("[]:65535")];

    quoted_print(config_address_text(address, text, sizeof(text)), out);
}

static void
list_print(const struct key *key, const void *field, FILE *out)
{
    const struct config_list *list = field;

    fputc('[', out);
    for (size_t i = 0; i < list->count; i++) {
        fputs(i > 0 ? ", " : "", out);
        if (key->type == KEY_WORDS)
            quoted_print(list->item[i].host, out);
        else
            address_print(&list->item[i], out);
    }
    fputc(']', out);
}

static void
list_one_print(const struct key *key, const void *field, FILE *out)
{
    const struct config_list *list = field;

    (void)key;
    if (list->count == 0)
        fputs("none", out);
    else
        address_print(&list->item[0], out);
}

/* The types */

static const struct {
    parse_value *parse;
    print_value *print;
} types[] = {
    [KEY_SECTION] = {NULL, NULL},
    [KEY_ITEMS] = {NULL, NULL},
    [KEY_COUNT] = {count_parse, count_print},
    [KEY_SIZE] = {long_parse, long_print},
    [KEY_DURATION] = {long_parse, long_print},
    [KEY_SECONDS] = {seconds_parse, long_print},
    [KEY_CHOICE] = {choice_parse, choice_print},
    [KEY_WORD] = {named_parse, named_print},
    [KEY_PREFIX] = {prefix_parse, text_print},
    [KEY_NAMESPACE] = {namespace_parse, text_print},
    [KEY_USER] = {user_parse, text_print},
    [KEY_FILE] = {file_parse, text_print},
    [KEY_HOST] = {host_parse, text_print},
    [KEY_LISTEN] = {list_parse, list_print},
    [KEY_LISTEN_ONE] = {list_one_parse, list_one_print},
    [KEY_NODES] = {list_parse, list_print},
    [KEY_PATHS] = {list_parse, list_print},
    [KEY_WORDS] = {words_parse, list_print},
};

/* Whether the text may be "host:password": it has a colon, but no port. */
static bool
has_odd_port(struct text text)
{
    size_t digits = 0;

    while (digits < text.len && text.at[text.len - 1 - digits] >= '0' &&
           text.at[text.len - 1 - digits] <= '9')
        digits++;
    return memchr(text.at, ':', text.len) != NULL &&
           text.at[text.len - 1] != ']' &&
           (digits > 5 ||
               (digits < text.len && text.at[text.len - 1 - digits] != ':'));
}

/* Whether the value may have a secret by mistake: a URL or connection string
 * with a password, or a secret in place of the name of its file. */
static bool
may_have_secret(const struct key *key, struct text text)
{
    if (is_pem(text))
        return true;
    if (key->type == KEY_LISTEN || key->type == KEY_LISTEN_ONE ||
        key->type == KEY_NODES)
        return address_is_url(text) || !address_is_plain(text, "._-:[]%*/ ") ||
               has_odd_port(text);
    return key->type == KEY_FILE || key->type == KEY_USER ||
           key->type == KEY_WORDS;
}

size_t
value_home(const struct key *key, size_t item)
{
    const struct key *items = key_items(key);

    if (items == NULL)
        return 0;
    require(item < items->max);
    return items->offset + item * items->item_bytes;
}

uint32_t
value_item_count(const struct key *key, const struct config *config)
{
    uint32_t count;

    require(key->type == KEY_ITEMS);
    memcpy(&count, (const char *)config + key->count_offset, sizeof(count));
    return count;
}

uint32_t
value_item_add(const struct key *key, struct config *config)
{
    uint32_t count = value_item_count(key, config);
    uint32_t more = count + 1;

    require(count < key->max);
    memcpy((char *)config + key->count_offset, &more, sizeof(more));
    return count;
}

void
value_clear(const struct key *key, void *home)
{
    memset((char *)home + key->offset, 0, key->bytes);
}

bool
value_is_empty(const struct key *key, const void *home)
{
    const char *field = (const char *)home + key->offset;

    /* The first byte is zero, and each byte equals the next. */
    return field[0] == 0 && memcmp(field, field + 1, key->bytes - 1) == 0;
}

void
value_unset(const struct key *key, void *home)
{
    const uint64_t unset = VALUE_UNSET;

    require(key->type == KEY_DURATION && key->bytes == sizeof(unset));
    memcpy((char *)home + key->offset, &unset, sizeof(unset));
}

bool
value_parse(const struct key *key, struct text text, void *home, char *why,
    size_t why_bytes)
{
    require(types[key->type].parse != NULL);
    return types[key->type].parse(key, text, (char *)home + key->offset,
        (struct why){why, why_bytes, may_have_secret(key, text)});
}

void
value_print(const struct key *key, const void *home, FILE *out)
{
    require(types[key->type].print != NULL);
    types[key->type].print(key, (const char *)home + key->offset, out);
}

bool
value_is_list(const struct key *key)
{
    return key->type == KEY_LISTEN || key->type == KEY_NODES ||
           key->type == KEY_PATHS || key->type == KEY_WORDS;
}

const struct config_list *
value_list(const struct key *key, const struct config *config)
{
    require(key->bytes == sizeof(struct config_list));
    return (const void *)((const char *)config + key->offset);
}
