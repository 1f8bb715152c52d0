/*
 * One value of the configuration: from text to its field, checked by its row of
 * the table, and back to text.
 *
 * It knows nothing of files and places, and sees one key at a time. checks.c
 * has the rules between keys.
 */
#ifndef HOLDFAST_CONF_VALUE_H
#define HOLDFAST_CONF_VALUE_H

#include "conf/config.h"
#include "conf/keys.h"
#include "daemon/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* value.c */

#define VALUE_TEXT_BYTES 32

/* The home of a key's field: its offset in struct config, in bytes. It is 0, or
 * the offset of the item, if the key is in a list of sections. */
size_t value_home(const struct key *key, size_t item);

/* Sets the field to zero, an empty text, or an empty list. */
void value_clear(const struct key *key, void *home);

/* A duration that is not given. */
#define VALUE_UNSET UINT64_MAX

/* Sets the field of a KEY_DURATION to VALUE_UNSET. */
void value_unset(const struct key *key, void *home);

/* Whether the value is zero, an empty text, or an empty list. */
bool value_is_empty(const struct key *key, const void *home);

/* Sets the field, which is empty, or adds an item to a list. False: `why` says
 * what is wrong, in one line that can be printed. */
bool value_parse(const struct key *key, struct text text, void *home, char *why,
    size_t why_bytes);

/* Prints the value as YAML, in one line without a line end. */
void value_print(const struct key *key, const void *home, FILE *out);

/* The number of items of a list of sections. */
uint32_t value_item_count(const struct key *key, const struct config *config);

/* Adds an item to a list of sections, which has room. Returns its index. */
uint32_t value_item_add(const struct key *key, struct config *config);

/* A number with the unit of its type: "30s", "1MiB", "64". `out` has
 * VALUE_TEXT_BYTES. Returns `out`. */
const char *value_number_text(enum key_type type, uint64_t number, char *out);

/* Whether the value is a list in the file. */
bool value_is_list(const struct key *key);

/* The field of a key whose type is one of the lists. */
const struct config_list *value_list(
    const struct key *key, const struct config *config);

/* address.c */

/* The error for a text that is neither a name nor a number. */
extern const char address_host_expected[];

/* Whether `text` has only letters, digits and bytes of `signs`. */
bool address_is_plain(struct text text, const char *signs);

/* Checks a host's name or number, without brackets. Returns NULL, or the error;
 * static. */
const char *address_check_host(const char *host);

/* Reads "HOST:PORT" or "[IPV6]:PORT" into *out, whose bytes are zero. Returns
 * NULL, or the error; static. */
const char *address_read(
    struct text text, uint64_t port_min, struct config_address *out);

/* Whether `text` is a URL, or has a user before its host. */
bool address_is_url(struct text text);

#endif
