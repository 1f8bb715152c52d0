/*
 * From the file to struct config: reads, fills in defaults, checks. All
 * mistakes are reported, except those that may follow from another one. load()
 * has the order of the steps, since a default may depend on other keys of the
 * file.
 *
 * Used at start and for a reload. value.c reads one value, walk.c the YAML;
 * checks.c has the rules between keys.
 */
#include "conf/config.h"

#include "conf/checks.h"
#include "conf/keys.h"
#include "conf/value.h"
#include "conf/walk.h"
#include "daemon/base/assert.h"
#include "daemon/base/log.h"
#include "daemon/base/secret.h"

#include <stdlib.h>
#include <string.h>

#define QUOTE_BYTES 96

/* Defaults */

/* Sets a key to its default. */
static void
set_standard(const struct key *key, void *home)
{
    char why[256];
    const char *at = key->standard;

    value_clear(key, home);
    while (*at != '\0') {
        size_t len = strcspn(at, " ");

        require(value_parse(key, text_make(at, len), home, why, sizeof(why)));
        at += len;
        at += strspn(at, " ");
    }
}

static void
derive_settle(struct config *config)
{
    config->settle_ms = config->lease_ms;
}

/* A short lease alone passes check_command_timeout() so. */
static void
derive_command_timeout(struct config *config)
{
    uint64_t quarter_ms = config->lease_ms / 4;

    config->command_timeout_ms = quarter_ms < 1000 ? quarter_ms : 1000;
}

/* A missing key of an item has the value for all locks. In a reload that is the
 * value in force, since the keys of `audit` need a restart. */
static void
derive_item(uint64_t *item_ms, uint64_t all_ms)
{
    if (*item_ms == VALUE_UNSET)
        *item_ms = all_ms;
}

static void
derive_namespaces(struct config *config, const struct config *all)
{
    for (uint32_t i = 0; i < config->namespace_count; i++) {
        struct config_namespace *namespace = &config->namespaces[i];
        derive_item(&namespace->warn_after_ms, all->warn_after_ms);
        derive_item(&namespace->wait_after_ms, all->wait_after_ms);
        derive_item(&namespace->break_after_ms, all->break_after_ms);
    }
}

void
config_init(struct config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < key_count(); i++) {
        if (key_at(i)->standard != NULL && key_items(key_at(i)) == NULL)
            set_standard(key_at(i), config);
    }
    derive_settle(config);
    derive_command_timeout(config);
}

/* The walk */

/* The mistake is in the key that was read last. */
static void
on_mistake(struct walk *walk)
{
    struct loader *loader = walk->context;

    if (loader->key != NULL)
        loader->bad[key_index(loader->key)] = true;
}

static bool
fail_unknown(struct walk *walk, struct text path, struct text name,
    struct walk_place place)
{
    struct loader *loader = walk->context;
    char quoted[QUOTE_BYTES];

    loader->key = NULL;

    /*
     * YAML reads `{password:x}` as a key without a value: it must not be shown.
     */
    for (size_t i = 0; i < path.len; i++)
        if (strchr(" :=@", path.at[i]) != NULL && path.at[i] != '\0')
            return walk_fail(walk, place,
                "unknown key %s...; a word and \": \" expected",
                log_quote(quoted, sizeof(quoted), text_make(path.at, i)));
    const struct key *near = key_suggest(path);
    loader->key = near; /* probably meant, so its value is not known */
    log_quote(quoted, sizeof(quoted), path);
    if (memchr(name.at, '.', name.len) != NULL && key_find(path) != NULL)
        return walk_fail(walk, place,
            "unknown key %s; write the section and the key below it, without "
            "a dot",
            quoted);
    if (near != NULL)
        return walk_fail(walk, place, "unknown key %s; did you mean \"%s\"%s?",
            quoted, near->path,
            near->type == KEY_FILE ? ", the name of a file" : "");
    return walk_fail(walk, place, "unknown key %s", quoted);
}

static void *
home_of(const struct loader *loader, const struct key *key)
{
    return (char *)loader->config + value_home(key, loader->item);
}

static enum walk_shape
shape_of(const struct key *key)
{
    if (key->type == KEY_SECTION)
        return WALK_SECTION;
    if (key->type == KEY_ITEMS)
        return WALK_ITEMS;
    return value_is_list(key) ? WALK_LIST : WALK_VALUE;
}

static bool
on_key(struct walk *walk, struct text path, struct text name,
    struct walk_place place, enum walk_shape *shape)
{
    struct loader *loader = walk->context;
    const struct key *key = key_find(path);
    struct walk_place *seen;

    if (key == NULL || (name.len > 0 && memchr(name.at, '.', name.len) != NULL))
        return fail_unknown(walk, path, name, place);
    seen = &loader->keys[key_index(key)];
    loader->key = key;
    if (seen->line != 0)
        walk_fail(walk, place, "key \"%s\" is already on line %zu", key->path,
            seen->line);
    else
        *seen = place;
    *shape = shape_of(key);
    if (key->type != KEY_SECTION && key->type != KEY_ITEMS)
        value_clear(key, home_of(loader, key));
    return true;
}

static bool
on_item(struct walk *walk, struct text path, struct walk_place place)
{
    struct loader *loader = walk->context;
    const struct key *items = key_find(path);

    require(items != NULL);
    if (value_item_count(items, loader->config) == items->max)
        return walk_fail(walk, place, "%s: at most %u allowed", items->path,
            (unsigned)items->max);
    loader->item = value_item_add(items, loader->config);
    require(
        loader->item < CONFIG_NAMESPACES_MAX); /* the only list of sections */
    loader->namespaces[loader->item] = place;
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        if (key_items(key) != items)
            continue;
        loader->keys[i] = (struct walk_place){0, 0};
        if (key->standard != NULL)
            set_standard(key, home_of(loader, key));
        else
            value_unset(key, home_of(loader, key));
    }
    return true;
}

static bool
on_value(struct walk *walk, struct text value, struct walk_place place)
{
    struct loader *loader = walk->context;
    char why[256];

    require(loader->key != NULL); /* on_key() comes before on_value() */
    loader->values[key_index(loader->key)] = place;
    if (value_parse(
            loader->key, value, home_of(loader, loader->key), why, sizeof(why)))
        return true;
    return walk_fail(walk, place, "%s: %s", loader->key->path, why);
}

/* Files */

/* Reads the password from the file at `path`, if the key is given. The error
 * for an unreadable file omits the path, which may be the password itself. */
static bool
read_password(struct loader *loader, const char *key, const char *path,
    char *out, size_t out_bytes)
{
    char bytes[SECRET_FILE_BYTES];
    char quoted[QUOTE_BYTES];
    char why[128];
    struct text secret;
    size_t len;

    if (path[0] == '\0')
        return true;
    struct walk_place place =
        loader->values[key_index(key_find(text_from(key)))];
    const char *what =
        file_read(path, loader->in_force != NULL, bytes, sizeof(bytes), &len);
    if (what != NULL)
        return walk_fail(
            &loader->walk, place, "%s: the file cannot be read: %s", key, what);
    bool good = secret_read(
        text_make(bytes, len), 1, out_bytes - 1, &secret, why, sizeof(why));
    if (good)
        memcpy(out, secret.at, secret.len);
    explicit_bzero(bytes, sizeof(bytes));
    return good || walk_fail(&loader->walk, place, "%s: %s %s", key,
                       log_quote(quoted, sizeof(quoted), text_from(path)), why);
}

/* Whether the file can be read and has another password. */
static bool
is_other_password(const char *path, const char *password)
{
    char bytes[SECRET_FILE_BYTES];
    char why[128];
    struct text secret;
    size_t len;

    if (path[0] == '\0' ||
        file_read(path, true, bytes, sizeof(bytes), &len) != NULL)
        return false;
    bool other = secret_read(text_make(bytes, len), 1, SECRET_FILE_BYTES - 1,
                     &secret, why, sizeof(why)) &&
                 !text_equal(secret, text_from(password));
    explicit_bzero(bytes, sizeof(bytes));
    return other;
}

bool
config_has_other_password(const struct config *config)
{
    return is_other_password(
               config->redis_password_file, config->redis_password) ||
           is_other_password(
               config->sentinel_password_file, config->sentinel_password);
}

static bool
read_passwords(struct loader *loader)
{
    struct config *config = loader->config;

    read_password(loader, "redis.password_file", config->redis_password_file,
        config->redis_password, sizeof(config->redis_password));
    read_password(loader, "redis.sentinel_password_file",
        config->sentinel_password_file, config->sentinel_password,
        sizeof(config->sentinel_password));
    return loader->walk.mistakes == 0;
}

/* Loading */

/*
 * False: the walk has ended early. True: the loader has the mistakes, if any.
 */
static bool
load(struct loader *loader, struct text text)
{
    require(key_count() <= CHANGES_KEYS_MAX);
    config_init(loader->config);
    if (!walk_text(&loader->walk, text))
        return false;
    if (!checks_is_given(loader, "redis.settle"))
        derive_settle(loader->config);
    if (!checks_is_given(loader, "redis.command_timeout"))
        derive_command_timeout(loader->config);
    derive_namespaces(loader->config,
        loader->in_force != NULL ? loader->in_force : loader->config);
    (void)checks_run(loader);
    return true;
}

static void
loader_init(struct loader *loader, struct config *config, const char *file,
    char *error, size_t error_bytes)
{
    memset(loader, 0, sizeof(*loader));
    loader->config = config;
    loader->walk.file = file;
    loader->walk.error = error;
    error[0] = '\0';
    loader->walk.error_bytes = error_bytes;
    loader->walk.context = loader;
    loader->walk.on_mistake = on_mistake;
    loader->walk.on_key = on_key;
    loader->walk.on_item = on_item;
    loader->walk.on_value = on_value;
}

bool
config_load_text(struct config *config, const char *name, const char *text,
    size_t len, char *error, size_t error_bytes)
{
    struct loader loader;

    loader_init(&loader, config, name, error, error_bytes);
    return load(&loader, text_make(text, len)) && loader.walk.mistakes == 0;
}

/* Reports the lines of the fault, at the value of its key. */
static bool
run_check(struct loader *loader, config_check *check, void *context)
{
    struct config_fault fault = {.key = NULL};

    if (check == NULL || check(loader->config, context, &fault))
        return true;
    const struct key *key = key_find(text_from(fault.key));
    require(key != NULL);
    size_t len;
    for (const char *at = fault.what; *at != '\0';
         at += len + (at[len] == '\n')) {
        len = strcspn(at, "\n");
        walk_fail(&loader->walk, loader->values[key_index(key)], "%s: %.*s",
            fault.key, (int)len, at);
    }
    return false;
}

/* config_load_checked() with an initialized loader. */
static bool
load_file(struct loader *loader, config_check *check, void *context)
{
    struct walk *walk = &loader->walk;
    const char *what;
    size_t len;
    char *text = file_load(walk->file, loader->in_force != NULL, &len, &what);

    if (text == NULL) {
        snprintf(walk->error, walk->error_bytes, "%s: %s", walk->file, what);
        return false;
    }
    bool done = load(loader, text_make(text, len)) && read_passwords(loader) &&
                run_check(loader, check, context);
    free(text);
    return done;
}

bool
config_load_checked(struct config *config, const char *path,
    config_check *check, void *context, char *error, size_t error_bytes)
{
    struct loader loader;

    loader_init(&loader, config, path, error, error_bytes);
    return load_file(&loader, check, context);
}

bool
config_load(
    struct config *config, const char *path, char *error, size_t error_bytes)
{
    return config_load_checked(config, path, NULL, NULL, error, error_bytes);
}

/* Reloading */

struct reload {
    struct loader loader;
    struct config next;  /* the configuration of the file */
    struct config mixed; /* that in force, with the changes */
};

static bool
reload(struct reload *reload, const struct config *now, const char *path,
    config_check *check, void *context, struct config_changes *changes)
{
    struct loader *loader = &reload->loader;

    loader->in_force = now;
    config_init(&reload->next);
    if (path != NULL && !load_file(loader, check, context))
        return false;
    reload->mixed = *now;
    /* A default follows the lease in force, not one that needs a restart. */
    if (!checks_is_given(loader, "redis.command_timeout")) {
        derive_command_timeout(&reload->mixed);
        reload->next.command_timeout_ms = reload->mixed.command_timeout_ms;
    }
    changes_find(changes, now, &reload->next);
    changes_take(changes, &reload->mixed, &reload->next);
    loader->config = &reload->mixed;
    return checks_run(loader);
}

bool
config_reload(struct config *config, const char *path, config_check *check,
    void *context, struct config_changes *changes, char *error,
    size_t error_bytes)
{
    struct reload *own = malloc(sizeof(*own));

    if (own == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return false;
    }
    loader_init(&own->loader, &own->next, path, error, error_bytes);
    bool done = reload(own, config, path, check, context, changes);
    if (done)
        *config = own->mixed;
    explicit_bzero(own, sizeof(*own));
    free(own);
    return done;
}

/* Printing */

/* Prints the list of sections, each with a dash before its first key. */
static void
print_items(const struct key *items, const struct config *config, FILE *out)
{
    uint32_t count = value_item_count(items, config);

    fputs(count == 0 ? " []\n" : "\n", out);
    for (uint32_t item = 0; item < count; item++) {
        const char *before = "    - ";
        for (size_t i = 0; i < key_count(); i++) {
            const struct key *key = key_at(i);
            if (key_items(key) != items)
                continue;
            fprintf(out, "%s%s: ", before, key_name(key));
            value_print(key, (const char *)config + value_home(key, item), out);
            fputc('\n', out);
            before = "      ";
        }
    }
}

void
config_print(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < key_count(); i++) {
        const struct key *key = key_at(i);
        int indent = (int)(4 * key_depth(key));

        if (key_items(key) != NULL)
            continue;
        fprintf(out, "%*s%s:", indent, "", key_name(key));
        if (key->type == KEY_ITEMS) {
            print_items(key, config, out);
            continue;
        }
        if (key->type != KEY_SECTION) {
            fputc(' ', out);
            value_print(key, config, out);
        }
        fputc('\n', out);
    }
}
