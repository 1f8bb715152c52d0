/*
 * HOLDFAST_HELD in the environment of a program under run has a word for each
 * lock of each run above it:
 *
 *     PID=MODE=ADDRESS=KEY
 *
 * PID is the run's. MODE is `x` for an exclusive hold, and `s` for a shared
 * lock or a semaphore; with --tree, `X` and `S`. ADDRESS and KEY are
 * percent-encoded, which leaves `/` as it is.
 *
 * A process may outlive the run and keep the variable. So a word counts only
 * while its run is an ancestor of this process, which it stays for life as a
 * subreaper. Only words with the same address count, since another address may
 * be another Redis.
 */
#define _GNU_SOURCE 1

#include "proto/holdfast/acquire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE   "HOLDFAST_HELD"
#define LEVELS_MAX 1000 /* of ancestors */

/* The text in percent-encoding. NULL: no memory. The caller frees it. */
static char *
encoded(const char *text)
{
    size_t bytes = 3 * strlen(text) + 1;
    char *out = malloc(bytes);

    if (out != NULL)
        (void)holdfast_encode(text, strlen(text), out, bytes);
    return out;
}

/* Whether others may hold the lock at the same time. */
static bool
has_room(const struct acquire *acquire)
{
    return acquire->options.shared || acquire->options.limit > 1;
}

static char
mode_of(const struct acquire *acquire)
{
    if (acquire->options.tree)
        return has_room(acquire) ? 'S' : 'X';
    return has_room(acquire) ? 's' : 'x';
}

/* Whether the key is a part of the other one. */
static bool
is_part(const char *key, const char *whole)
{
    size_t len = strlen(whole);

    return strncmp(key, whole, len) == 0 && key[len] == '/';
}

bool
nested_tell(const struct acquire *acquire)
{
    const char *above = getenv(VARIABLE);
    char *address = encoded(acquire->address);
    char *text = strdup(above != NULL ? above : "");

    for (size_t i = 0; i < acquire->key_count && text != NULL; i++) {
        char *key = encoded(acquire->keys[i]);
        char *more = NULL;

        if (address == NULL || key == NULL ||
            asprintf(&more, "%s%s%ld=%c=%s=%s", text,
                text[0] != '\0' ? " " : "", (long)getpid(), mode_of(acquire),
                address, key) < 0)
            more = NULL;
        free(key);
        free(text);
        text = more;
    }
    bool told = text != NULL && setenv(VARIABLE, text, 1) == 0;
    free(address);
    free(text);
    return told;
}

/* The parent of a process; 0: it is not known. */
static long
parent_of(long pid)
{
    char path[64];
    char text[512];
    long parent = 0;

    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    /* The name may have any bytes. State and parent follow its last ')'. */
    const char *name_end = strrchr(text, ')');
    if (name_end == NULL || sscanf(name_end, ") %*c %ld", &parent) != 1)
        return 0;
    return parent;
}

static bool
is_above(long pid)
{
    long parent = (long)getppid();

    for (int i = 0; i < LEVELS_MAX && parent > 1; i++) {
        if (parent == pid)
            return true;
        parent = parent_of(parent);
    }
    return false;
}

/* Whether the word is of this key, or one of the two is a part of the other,
 * and its run excludes this command. A part excludes by --tree alone. */
static bool
word_excludes(const char *word, const char *address, const char *key,
    const struct acquire *acquire, long *pid)
{
    char mode;
    int at = 0;
    size_t address_len = strlen(address);

    if (sscanf(word, "%ld=%c=%n", pid, &mode, &at) != 2 || at == 0)
        return false;
    word += at;
    if (strncmp(word, address, address_len) != 0 || word[address_len] != '=')
        return false;
    const char *held = word + address_len + 1;
    bool tree = mode == 'X' || mode == 'S';
    bool room = mode == 's' || mode == 'S';
    return (strcmp(held, key) == 0 || (tree && is_part(held, key)) ||
               (acquire->options.tree && is_part(key, held))) &&
           !(room && has_room(acquire)) && is_above(*pid);
}

const char *
nested_find(const struct acquire *acquire, long *pid)
{
    const char *held = getenv(VARIABLE);
    char *address = encoded(acquire->address);
    const char *found = NULL;

    for (size_t i = 0;
         i < acquire->key_count && found == NULL && held != NULL && address;
         i++) {
        char *words = strdup(held);
        char *key = encoded(acquire->keys[i]);
        char *rest = words;
        const char *word;

        while (
            key != NULL && found == NULL && (word = strsep(&rest, " ")) != NULL)
            if (word_excludes(word, address, key, acquire, pid))
                found = acquire->keys[i];
        free(key);
        free(words);
    }
    free(address);
    return found;
}
