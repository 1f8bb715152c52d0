/*
 * The input is a configuration file. For each input:
 *
 * - a refusal is printable lines, each with a place that is in the file;
 * - each value lies within the ranges of the table;
 * - printed and read again it is the same, byte for byte.
 */
#include "conf/config.h"
#include "conf/keys.h"
#include "conf/value.h"
#include "daemon/base/assert.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_BYTES ((size_t)256 * 1024)

static struct config first;
static struct config second;
static char error[CONFIG_ERROR_BYTES];

/* Returns its end. */
static char *
check_line(char *at, size_t lines, size_t size)
{
    static const char more[] = "f: more mistakes follow";
    size_t line;

    if (strncmp(at, more, strlen(more)) == 0)
        return at + strlen(at);
    require(strncmp(at, "f:", 2) == 0);
    line = strtoul(at + 2, &at, 10);
    require(line >= 1 && line <= lines + 1);
    require(at[0] == ':' && at[1] >= '1' && at[1] <= '9');
    require(strtoul(at + 1, &at, 10) <= size + 1);
    require(at[0] == ':' && at[1] == ' ' && at[2] != '\0');
    for (; *at != '\0' && *at != '\n'; at++)
        require(*at >= 0x20 && *at <= 0x7e);
    return at;
}

static void
check_error(const char *data, size_t size)
{
    size_t lines = 1;
    char *at;

    /* A lone CR, NEL and the Unicode separators end lines too. */
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n' || data[i] == '\r' ||
                 (unsigned char)data[i] == 0x85 ||
                 (unsigned char)data[i] == 0xa8 ||
                 (unsigned char)data[i] == 0xa9;
    for (at = error; *at != '\0'; at += *at == '\n')
        at = check_line(at, lines, size);
}

static uint64_t
number_of(const struct key *key, const char *base)
{
    const void *field = base + key->offset;

    if (key->bytes == sizeof(uint32_t))
        return *(const uint32_t *)field;
    return *(const uint64_t *)field;
}

/* `base`: the configuration, or one of its items where the key is of those. */
static void
check_range(const struct key *key, const char *base)
{
    uint64_t number = key->min;

    if (key->type == KEY_COUNT || key->type == KEY_SIZE ||
        key->type == KEY_DURATION || key->type == KEY_SECONDS)
        number = number_of(key, base);
    else if (key->bytes == sizeof(struct config_list))
        number = value_list(key, (const struct config *)base)->count;
    require(number >= key->min && number <= key->max);
}

static void
check_ranges(const struct config *config)
{
    require(config->namespace_count <= CONFIG_NAMESPACES_MAX);
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        if (key_items(key) == NULL)
            check_range(key, (const char *)config);
        for (uint32_t j = 0;
             key_items(key) != NULL && j < config->namespace_count; j++)
            check_range(key, (const char *)&config->namespaces[j]);
    }
    require(config->listen_tcp.count + config->listen_unix.count > 0);
    require(config->command_timeout_ms * 3 < config->lease_ms);
    require(config->redis_password[0] == '\0');
}

static void
check_again(void)
{
    char *text = malloc(TEXT_BYTES);
    FILE *file = fmemopen(text, TEXT_BYTES, "w");
    long len;

    require(text != NULL && file != NULL);
    config_print(&first, file);
    len = ftell(file);
    require(len > 0 && (size_t)len < TEXT_BYTES);
    fclose(file);
    require(config_load_text(
        &second, "f", text, (size_t)len, error, sizeof(error)));
    require(memcmp(&first, &second, sizeof(first)) == 0);
    free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* With nothing around it, so that the sanitizer sees a byte too many. */
    char *text = malloc(size == 0 ? 1 : size);

    require(text != NULL);
    memcpy(text, data, size);
    if (config_load_text(&first, "f", text, size, error, sizeof(error))) {
        check_ranges(&first);
        check_again();
    } else {
        check_error(text, size);
    }
    free(text);
    return 0;
}
