/*
 * The parts of a fake Redis; for tests/sim/fake*.c alone.
 *
 * A command comes from a connection or from a script. Either way it is a
 * struct call: arguments that somebody else owns, and a buffer that gets the
 * reply as RESP2. A command's writes are marked on the keys; when the command,
 * or the script around it, is done, keys_flush() tells the sink and the
 * replicas.
 *
 * Nothing here depends on addresses or on the order of a hash table: what is
 * walked are arrays.
 */
#ifndef HOLDFAST_TESTS_SIM_FAKE_STATE_H
#define HOLDFAST_TESTS_SIM_FAKE_STATE_H

#include "tests/sim/fake.h"

#include "daemon/base/assert.h"
#include "daemon/base/random.h"
#include "daemon/base/text.h"

#define FAKE_NODES_MAX  64
#define FAKE_STRING_MAX 536870912 /* proto-max-bulk-len */
#define FAKE_FIRST_ID   3         /* of connections; Redis uses some itself */
#define FAKE_NEVER_MS   (-1)      /* of a key without expiry */
#define FAKE_SWEEP_MS   100 /* between walks over all keys for expired ones */
#define FAKE_SHA_HEX    40

/* --- bytes ---------------------------------------------------------------- */

/* Bytes that grow; zeroed is empty. */
struct bytes {
    char *at; /* owned */
    size_t len;
    size_t cap;
};

/* Room for `len` more bytes at the end. Aborts where there is no memory. */
char *bytes_room(struct bytes *bytes, size_t len);
void bytes_add(struct bytes *bytes, const void *from, size_t len);
void bytes_fini(struct bytes *bytes);

/* realloc() that aborts where there is no memory. */
void *memory_get(void *old, size_t len);

/* Room for one more element, in an array whose capacity is doubled. */
void *array_room(void *array, size_t count, size_t *cap, size_t element);

/* A whole number as Redis takes one: no blanks, no plus, no leading zero. */
bool number_read(struct text text, int64_t *out);

bool text_is(struct text text, const char *word); /* without case */

void sha1_hex(const char *bytes, size_t len, char out[FAKE_SHA_HEX + 1]);

/* --- keys ----------------------------------------------------------------- */

enum value_type {
    VALUE_STRING,
    VALUE_LIST,
    VALUE_HASH
};

struct key {
    struct key *next;   /* ref: of the bucket */
    struct bytes value; /* lists and hashes: length (4 bytes) and bytes, each */
    uint64_t hash;
    int64_t expires_ms; /* FAKE_NEVER_MS: never */
    size_t index;       /* in keyspace.all */
    uint32_t name_len;
    uint16_t slot;
    enum value_type type;
    bool touched; /* in keyspace.touched */
    bool dead;    /* touched, and not in the table any more */
    char name[];
};

struct keyspace {
    struct key **buckets;
    size_t bucket_count; /* a power of two */
    struct key **all;    /* owned, in no order that means anything */
    size_t count;
    size_t cap;
    struct key **touched; /* by the command under way; the dead are owned */
    size_t touched_count;
    size_t touched_cap;
    int64_t due_ms; /* no key expires sooner; INT64_MAX: none does */
    int64_t next_sweep_ms;
};

void keys_init(struct keyspace *keys);
void keys_fini(struct keyspace *keys);

/* Also where it has expired. */
struct key *keys_find(const struct keyspace *keys, struct text name);
struct key *keys_add(struct fake *fake, struct text name);
void keys_remove(struct fake *fake, struct key *key);
void keys_clear(struct fake *fake);
bool key_expired(const struct fake *fake, const struct key *key);
void keys_set_expiry(struct fake *fake, struct key *key, int64_t expires_ms);

/* The key that a command sees: NULL also if it has expired (a master drops it).
 */
struct key *keys_lookup(struct fake *fake, struct text name);
void keys_touch(struct fake *fake, struct key *key);

/* Drops what has expired, now and then; replicas leave that to the master. */
void keys_sweep(struct fake *fake);

/* The command is done: tells the sink and the replicas what it wrote. */
void keys_flush(struct fake *fake);

/* All keys of one into the other, which has none. */
void keys_copy(struct fake *to, const struct fake *from);

/* --- commands ------------------------------------------------------------- */

enum command_flag {
    COMMAND_WRITE = 1,
    COMMAND_READ = 2,
    COMMAND_DENYOOM = 4,
    COMMAND_LOADING = 8,
    COMMAND_NOSCRIPT = 16,
    COMMAND_BUSY = 32, /* also while a script is running */
    COMMAND_NO_AUTH = 64,
    COMMAND_MAY_REPLICATE = 128,
    COMMAND_SUBSCRIBED = 256, /* also where channels are subscribed to */
    COMMAND_SCRIPT = 512,     /* its keys are counted, its flags the script's */
    COMMAND_SENTINEL = 1024   /* only Sentinels know it */
};

struct call;

struct command {
    const char *name; /* lower case; "client|id" */
    int arity;        /* with the name; negative: at least */
    unsigned flags;   /* enum command_flag */
    int first_key;    /* 0: none */
    int last_key;     /* -1: the last argument */
    void (*run)(struct call *call);
};

struct call {
    struct fake *fake;
    struct connection *connection; /* the script's, where it is in one */
    const struct command *command;
    const struct text *arg; /* with the command's name */
    size_t count;
    struct bytes *out; /* RESP2 */
    bool in_script;
};

/* NULL: unknown. Also sets `container` where the first word is one. */
const struct command *command_find(
    const struct text *arg, size_t count, bool *container);

/* The keys are arg[first] to arg[first + count - 1]. */
void command_keys(const struct command *command, const struct text *arg,
    size_t count, size_t *first, size_t *keys);

void reply_status(struct call *call, const char *status);
void reply_integer(struct call *call, int64_t value);
void reply_bulk(struct call *call, const char *at, size_t len);
void reply_string(struct call *call, const char *string); /* a bulk */
void reply_nil(struct call *call);
void reply_array(struct call *call, size_t count);

/* "ERR " is put in front where `format` does not begin with '-'; line ends
 * become blanks. */
void reply_error(struct call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Every byte as it is. */
void reply_error_raw(struct call *call, const char *at, size_t len);

bool arg_number(struct call *call, size_t index, int64_t *out);

/* In fake_keys.c and fake_values.c. */
void command_append(struct call *call);
void command_dbsize(struct call *call);
void command_del(struct call *call);
void command_exists(struct call *call);
void command_expire(struct call *call);
void command_flushall(struct call *call);
void command_get(struct call *call);
void command_getrange(struct call *call);
void command_hget(struct call *call);
void command_hset(struct call *call);
void command_incr(struct call *call);
void command_llen(struct call *call);
void command_lpush(struct call *call);
void command_mget(struct call *call);
void command_persist(struct call *call);
void command_scan(struct call *call);
void command_set(struct call *call);
void command_setrange(struct call *call);
void command_strlen(struct call *call);
void command_ttl(struct call *call);
void command_type(struct call *call);

/* In fake_lua.c. */
void command_eval(struct call *call);
void command_script_exists(struct call *call);
void command_script_flush(struct call *call);
void command_script_load(struct call *call);

/* In fake_cluster.c. */
void command_cluster_keyslot(struct call *call);
void command_cluster_myid(struct call *call);
void command_cluster_replicas(struct call *call);
void command_cluster_slots(struct call *call);

/* In fake_info.c. */
void command_info(struct call *call);
void command_role(struct call *call);
void command_wait(struct call *call);
/* Answers the WAIT of a connection that waits, where it is over. */
bool wait_over(struct fake *fake, struct connection *connection);

/* --- connections ---------------------------------------------------------- */

struct connection {
    uint32_t id;
    struct bytes in;  /* a command that has not come whole */
    struct bytes out; /* not yet given to the sink */
    struct bytes name;
    struct bytes *channels; /* owned, in order of subscription */
    size_t channel_count;
    size_t channel_cap;
    uint64_t wrote_to; /* place in the log after its last command, for WAIT */
    uint64_t wait_until_us; /* its WAIT waits, at most so long; or 0 */
    int64_t wait_wanted;    /* for so many */
    bool authenticated;
    bool asking;
    bool readonly;
    bool closing;  /* after what is in `out` */
    bool in_dirty; /* listed in fake.dirty */
    bool dead;     /* freed when the input under way is done */
};

/* --- scripts -------------------------------------------------------------- */

enum script_flag {
    SCRIPT_NO_WRITES = 1,
    SCRIPT_ALLOW_OOM = 2,
    SCRIPT_ALLOW_STALE = 4,
    SCRIPT_NO_CLUSTER = 8,
    SCRIPT_ALLOW_CROSS_SLOT = 16,
    SCRIPT_COMPATIBLE = 32 /* no #! line */
};

struct known_script {
    char sha[FAKE_SHA_HEX];
    unsigned flags; /* enum script_flag */
    int function;   /* reference in the Lua state */
};

/* The script under way. */
struct script_run {
    struct connection *connection;
    unsigned flags; /* enum script_flag */
    unsigned calls; /* redis.call()s so far */
    int slot;       /* of its keys; -1: not known yet */
    bool wrote;
};

/* The flags of a command within a script. */
unsigned script_command_flags(
    struct fake *fake, const struct command *command, const struct text *arg);
void script_forget_all(struct fake *fake);

/* --- cluster and replication ---------------------------------------------- */

enum redirect {
    REDIRECT_NONE,
    REDIRECT_CROSS_SLOT,
    REDIRECT_TRYAGAIN,
    REDIRECT_DOWN,
    REDIRECT_UNSERVED,
    REDIRECT_MOVED,
    REDIRECT_ASK
};

/* Another server, as this one knows it. */
struct peer {
    const struct fake *fake;   /* ref: who it is, never looked into */
    const struct fake *master; /* ref: set where it is listed as a replica */
    char id[41];
    char host[48];
    uint16_t port;
};

struct open_slot {
    uint16_t slot;
    uint8_t peer;
};

/* One key after a command. */
struct effect {
    char *name; /* owned; the value follows it */
    size_t name_len;
    size_t value_len;
    int64_t expires_ms;
    enum value_type type;
    bool gone;
    bool last; /* of its command */
};

/* The writes of this server, for its replicas: from `first` on. */
struct replication_log {
    struct effect *effects; /* ring */
    size_t cap;             /* a power of two, or 0 */
    uint64_t first;         /* number of the oldest that is kept */
    uint64_t end;           /* number of the next one */
    uint64_t commands;      /* ends of commands among all ever written */
};

struct cluster {
    uint8_t owner[FAKE_SLOTS]; /* index of a peer + 1; 0: nobody */
    struct peer peers[FAKE_NODES_MAX];
    size_t peer_count;
    struct open_slot *migrating;
    size_t migrating_count;
    size_t migrating_cap;
    struct open_slot *importing;
    size_t importing_count;
    size_t importing_cap;
};

/* The node of a command with keys; `slot` stays as it is without keys.
 * `peer` is set for MOVED and ASK. */
enum redirect cluster_route(const struct call *call, unsigned flags, int *slot,
    const struct peer **peer);
void cluster_redirect(struct call *call, enum redirect redirect, int slot,
    const struct peer *peer);
void cluster_publish(struct call *call);

/* A key as it is now, dead or not; then the end of what one command wrote. */
void replication_write(struct fake *fake, const struct key *key);
void replication_commit(struct fake *fake);

/* Its replicas have lost it: the log is gone, and they need a full copy. */
void replication_reset(struct fake *fake);
void replication_fini(struct fake *fake);

/* --- the server ----------------------------------------------------------- */

struct fake {
    struct fake_settings settings;
    struct random random;
    char master_host[48]; /* of a Sentinel; empty: it knows none */
    uint16_t master_port;
    uint64_t realtime_us;
    enum fake_mood mood;
    char node_id[41];
    char run_id[41];
    char repl_id[41];
    char repl_id2[41];
    int64_t second_offset;
    uint64_t started_us;

    struct keyspace keys;

    struct connection **connections; /* owned, by id */
    size_t connection_count;
    size_t connection_cap;
    uint32_t next_id;
    struct connection **dirty; /* ref: with output */
    size_t dirty_count;
    size_t dirty_cap;
    struct connection **dead; /* owned; freed at the end of the input */
    size_t dead_count;
    size_t dead_cap;
    struct text *args; /* of the command under way */
    size_t arg_cap;
    unsigned depth; /* of inputs under way: 0 or 1 */

    struct known_script *scripts;
    size_t script_count;
    size_t script_cap;
    struct script_run *run; /* ref: NULL where none is under way */
    unsigned break_after;
    uint64_t random48; /* of math.random */
    struct bytes script_out;
    struct bytes info_cache; /* INFO replication */

    struct cluster *cluster; /* owned; NULL: cluster_enabled is 0 */
    struct fake *master;     /* ref */
    bool replica;
    bool link_down;   /* must take a full copy before the next effect */
    bool had_replica; /* has a backlog, and so counts its offset */
    uint64_t applied; /* effects of the master's log */
    uint64_t applied_commands;
    struct fake **replicas; /* ref, in order of attaching */
    size_t replica_count;
    size_t replica_cap;
    struct replication_log log;

    struct fake_counts counts;
};

int64_t fake_now_ms(const struct fake *fake);

/* Why no write is taken now, or NULL; begins with '-'. */
const char *fake_write_refusal(const struct fake *fake);
void fake_new_id(struct fake *fake, char id[41]);
struct connection *connection_find(const struct fake *fake, uint32_t id);
void connection_close(struct fake *fake, struct connection *connection);

/* It has output to be sent when the input is done. */
void connection_dirty(struct fake *fake, struct connection *connection);

/* To the subscribers here; returns their number. */
size_t channel_publish(
    struct fake *fake, struct text channel, struct text message);

#endif
