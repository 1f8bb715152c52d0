/*
 * The contents of the configuration file, checked and with all defaults.
 *
 * keys.c has the table of keys: name, type, range, default. Durations are
 * milliseconds.
 */
#ifndef HOLDFAST_CONF_CONFIG_H
#define HOLDFAST_CONF_CONFIG_H

#include "daemon/base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_LISTEN_MAX     16
#define CONFIG_NODES_MAX      64
#define CONFIG_NAMESPACES_MAX 32
#define CONFIG_WORDS_MAX      16

enum config_topology {
    TOPOLOGY_SINGLE,
    TOPOLOGY_CLUSTER,
    TOPOLOGY_SENTINEL,
    TOPOLOGY_QUORUM,
};

enum config_safety {
    SAFETY_FENCED,
    SAFETY_STRICT,
};

/* The name that the certificate of a Redis node must have. */
enum config_verify {
    VERIFY_FULL, /* the node's host, or redis.tls.server_name */
    VERIFY_CA,   /* any name */
};

/* Certificates of clients that use TLS. */
enum config_client_cert {
    CLIENT_CERT_ASKED, /* optional; asked for if there is a tls_client_ca */
    CLIENT_CERT_REQUIRED,
};

/* Serving clients of other machines without users. */
enum config_without_users {
    WITHOUT_USERS_REFUSED,
    WITHOUT_USERS_ALLOWED,
};

#define CONFIG_QUORUM_MAX 15

/* "host:port", "[v6]:port", or the path of a Unix socket. A path has a slash, a
 * host never has. Bytes after the NUL are zero. */
struct config_address {
    char host[256]; /* name or number without brackets; or the path */
    uint16_t port;  /* 0: a path, or any free port of a listener */
};

struct config_list {
    struct config_address item[CONFIG_NODES_MAX];
    size_t count;
};

/* A namespace: the locks whose names begin with `prefix`. */
struct config_namespace {
    char prefix[65];
    uint64_t warn_after_ms; /* these three default to those of `audit` */
    uint64_t wait_after_ms;
    uint64_t break_after_ms;
};

struct config {
    /* listen */
    struct config_list listen_tcp;
    struct config_list listen_unix;
    struct config_list listen_tls;
    char listen_tls_cert[256];      /* path; empty: none, and no key */
    char listen_tls_key[256];       /* path */
    char listen_tls_client_ca[256]; /* path; empty: no client certificates */
    enum config_client_cert listen_tls_client_cert;
    uint32_t listen_backlog;
    enum config_without_users without_users;
    /* auth */
    char users_file[256];     /* path; empty: none */
    uint64_t auth_timeout_ms; /* until a client has sent AUTH; 0: no limit */
    /* admin */
    struct config_list admin_http; /* none or one */
    /* redis */
    enum config_topology topology;
    struct config_list redis_nodes;
    char redis_username[128];
    char redis_password_file[256]; /* path; empty: none */
    char redis_password[512];      /* read from the file by config_load() */
    char sentinel_master[128];
    char sentinel_username[128];
    char sentinel_password_file[256]; /* path; empty: none */
    char sentinel_password[512];      /* read from the file by config_load() */
    char tls_ca[256];                 /* path; empty: no TLS to Redis */
    char tls_cert[256];               /* path; empty: none, and no key */
    char tls_key[256];                /* path */
    char tls_server_name[256];        /* a host; empty: each node's own */
    enum config_verify tls_verify;
    char key_prefix[33];
    enum config_safety safety;
    uint32_t redis_replicas;
    uint64_t settle_ms;        /* default: the lease */
    uint64_t forget_after_ms;  /* lifetime of an unused lock's record */
    uint64_t redis_timeout_ms; /* a request waits so long for Redis */
    uint64_t connect_timeout_ms;
    uint64_t command_timeout_ms; /* default: 1 s, at most a quarter lease */
    uint32_t redis_batch;        /* operations in one call, at most */
    uint32_t redis_in_flight;    /* calls on a connection; 0: by topology */
    uint32_t busy_poll_us;       /* 0: always sleep */
    /* lease */
    uint64_t lease_ms; /* lease.default */
    /* session */
    uint64_t keepalive_idle_ms;     /* whole seconds */
    uint64_t keepalive_interval_ms; /* whole seconds */
    uint32_t keepalive_count;
    uint64_t tcp_user_timeout_ms;
    uint64_t stop_grace_ms; /* clients have so long when the broker stops */
    /* limits */
    uint32_t limit_connections;         /* 0: as many as descriptors allow */
    uint32_t limit_address_connections; /* these three: 0 is no limit */
    uint32_t limit_user_connections;
    uint32_t limit_user_holds;
    uint32_t limit_line;        /* bytes */
    uint32_t limit_name;        /* bytes */
    uint32_t limit_outstanding; /* requests of a session */
    uint32_t limit_holds;       /* holds and waits of a session */
    uint32_t limit_waiters;     /* waits for a lock */
    uint32_t limit_tickets;     /* holds and waits of the broker */
    uint32_t limit_requests;    /* requests of the broker */
    uint64_t limit_output;      /* unread bytes of a session */
    uint64_t limit_memory;      /* unread and unparsed bytes of all sessions */
    /* namespaces */
    struct config_namespace namespaces[CONFIG_NAMESPACES_MAX];
    uint32_t namespace_count;
    /* slow */
    uint64_t slow_threshold_ms; /* 0: no operation is slow */
    /* audit */
    uint64_t audit_interval_ms;    /* 0: no audit by time */
    uint32_t audit_keys;           /* of a step */
    uint64_t audit_pause_ms;       /* between steps */
    uint64_t warn_after_ms;        /* of holds; in these three 0 is never */
    uint64_t wait_after_ms;        /* of waits */
    uint64_t break_after_ms;       /* of holds, which are then broken */
    struct config_list audit_hook; /* a program's words; empty: no program */
    uint64_t hook_timeout_ms;
    /* log */
    char log_level[8];
    enum log_format log_format;
    uint32_t log_rate; /* lines a second of each event; 0: no limit */
};

/* Sets all defaults, as conf/holdfast.yaml shows them. */
void config_init(struct config *config);

/* Room for all errors of a file. */
#define CONFIG_ERROR_BYTES 8192

/*
 * Reads and checks a file, and the files of passwords. False: `config` is
 * unspecified, and `error` has a line "FILE:LINE:COLUMN: what" for each
 * mistake, up to a bound, or "FILE: what" if the file cannot be read.
 */
bool config_load(
    struct config *config, const char *path, char *error, size_t error_bytes);

/* Whether a file of a password, for Redis or the Sentinels, can be read and has
 * another password than `config`. */
bool config_has_other_password(const struct config *config);

/* The mistakes that a config_check finds. */
struct config_fault {
    const char *key;               /* ref, static: its dotted path */
    char what[CONFIG_ERROR_BYTES]; /* a line for each mistake */
};

/* Checks values that conf does not understand, such as files of keys. False:
 * `fault` says what is wrong. */
typedef bool config_check(
    const struct config *config, void *context, struct config_fault *fault);

/* config_load(), and after its success the check. A fault is reported like any
 * other error, at the place of the key's value. */
bool config_load_checked(struct config *config, const char *path,
    config_check *check, void *context, char *error, size_t error_bytes);

struct config_changes;

/*
 * Reads the file again, and changes the keys in `config` that need no restart.
 * `changes` has the changed keys, and those that need a restart. False: the
 * file has mistakes, alone or with the keys that stay, and `config` is
 * unchanged. Only regular files are read, since others may block. `path` NULL:
 * all defaults.
 */
bool config_reload(struct config *config, const char *path, config_check *check,
    void *context, struct config_changes *changes, char *error,
    size_t error_bytes);

/* As config_load(), for `len` bytes in memory. Errors call them `name`. It
 * opens no file, so the passwords stay empty. */
bool config_load_text(struct config *config, const char *name, const char *text,
    size_t len, char *error, size_t error_bytes);

/* Writes the configuration as YAML, which config_load() reads back. It has the
 * file of a password, but not the password. */
void config_print(const struct config *config, FILE *out);

/* "host:port", "[v6]:port" or the path, cut to `out_bytes`; 264 are enough.
 * Returns `out`. */
const char *config_address_text(
    const struct config_address *address, char *out, size_t out_bytes);

#endif
