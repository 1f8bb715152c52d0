/*
 * One value of the configuration: from text to its field, checked against its
 * row of the table, and back to text that reads the same.
 *
 * It knows nothing of files and places, and sees one key at a time: what two
 * keys must agree on is checks.c's.
 */
#ifndef HOLDFAST_CONF_VALUE_H
#define HOLDFAST_CONF_VALUE_H

#include "conf/config.h"
#include "conf/keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VALUE_TEXT_BYTES 32

/*
 * The offset in struct config of the struct with the key's field, in bytes. It
 * is 0, or the place of an item of the list of sections that has the key.
 */
size_t value_home(const struct key *key, size_t item);

/* Nothing: zero, an empty text, an empty list. `home` as above. */
void value_clear(const struct key *key, void *home);

/* A duration that is not given. */
#define VALUE_UNSET UINT64_MAX

/* Sets the field of a key that is a KEY_DURATION to VALUE_UNSET. */
void value_unset(const struct key *key, void *home);

/*
 * Sets the field, which has been cleared; adds an item to it where it is a
 * list. False: `why` says what is wrong, in one line that can be printed.
 */
bool value_parse(const struct key *key, struct text text, void *home, char *why,
    size_t why_bytes);

/* As YAML, in one line without its end. The key has a field. */
void value_print(const struct key *key, const void *home, FILE *out);

/* How many items a list of sections has. */
uint32_t value_item_count(const struct key *key, const struct config *config);

/* One more of them, as it is; there is room. Returns its place. */
uint32_t value_item_add(const struct key *key, struct config *config);

/*
 * A number of the key's type as people write it: "30s", "1MiB", "64". `out` has
 * VALUE_TEXT_BYTES. Returns `out`.
 */
const char *value_number_text(enum key_type type, uint64_t number, char *out);

/* Whether the key's value is a list of any length, in the file too. */
bool value_is_list(const struct key *key);

/* The field of a key whose type is one of the lists. */
const struct config_list *value_list(
    const struct key *key, const struct config *config);

#endif
