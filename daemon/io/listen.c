/*
 * Sockets to listen on, for clients and for HTTP: TCP, or a path. Options and
 * addresses of their clients.
 *
 * Listening is done at start only: it may block (names, the path of an old
 * socket).
 */
#include "daemon/io/listen.h"

#include "daemon/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char not_anywhere[] =
    "other machines can reach it, and there are no users: set "
    "auth.users_file, or listen.beyond_loopback_without_users: allowed";

void
listen_peer(const struct sockaddr_storage *address, socklen_t len, char *out,
    size_t out_bytes)
{
    char host[INET6_ADDRSTRLEN];
    char port[8];

    if (address->ss_family == AF_UNIX ||
        getnameinfo((const struct sockaddr *)address, len, host, sizeof(host),
            port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, out_bytes, "unix");
    else if (address->ss_family == AF_INET6)
        snprintf(out, out_bytes, "[%s]:%s", host, port);
    else
        snprintf(out, out_bytes, "%s:%s", host, port);
}

/* An IPv6 host has a whole /64. A uid stands for all its processes. */
void
listen_address_key(
    const struct sockaddr_storage *address, uint32_t uid, uint8_t out[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    memset(out, 0, 16);
    if (address->ss_family == AF_INET) {
        memcpy(out, mapped, sizeof(mapped));
        memcpy(out + sizeof(mapped),
            &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        bool is_v4 = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        memcpy(out, &v6->sin6_addr, is_v4 ? 16 : 8);
    } else {
        out[8] = 1; /* no IP address begins so */
        memcpy(out + 12, &uid, sizeof(uid));
    }
}

static bool
is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    if (address->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (address->sa_family != AF_INET6)
        return true;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
               v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

bool
listen_uid(int fd, uint32_t *uid)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return false;
    *uid = peer.uid;
    return true;
}

uint64_t
listen_set_options(const struct loop_settings *settings, int fd)
{
    const struct {
        int level;
        int name;
        int value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, (int)settings->keepalive_idle_s},
        {IPPROTO_TCP, TCP_KEEPINTVL, (int)settings->keepalive_interval_s},
        {IPPROTO_TCP, TCP_KEEPCNT, (int)settings->keepalive_count},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, (int)settings->tcp_user_timeout_ms},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name,
            &options[i].value, sizeof(options[i].value));
    uint64_t keepalive_us =
        (uint64_t)1000000 *
        (settings->keepalive_idle_s + (uint64_t)settings->keepalive_count *
                                          settings->keepalive_interval_s);
    uint64_t unacknowledged_us = (uint64_t)1000 * settings->tcp_user_timeout_ms;
    return keepalive_us < unacknowledged_us ? keepalive_us : unacknowledged_us;
}

static bool
has_v4(const struct loop_address *address, uint16_t port)
{
    return !address->is_path && port != 0 && address->port == port &&
           strchr(address->host, ':') == NULL;
}

/* Whether [::] must leave IPv4 alone, which it takes otherwise: another address
 * has its port there. */
static bool
leaves_v4(const struct loop_settings *settings, const struct addrinfo *one)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)one->ai_addr;

    if (one->ai_family != AF_INET6 || !IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
        return false;
    uint16_t port = ntohs(v6->sin6_port);
    for (uint32_t i = 0; i < settings->listen_count; i++)
        if (has_v4(&settings->listen[i], port))
            return true;
    return settings->http != NULL && has_v4(settings->http, port);
}

/* -1 with errno: the system refuses. */
static int
tcp_socket(const struct loop_settings *settings, const struct addrinfo *one)
{
    int fd =
        socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int yes = 1;

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (leaves_v4(settings, one))
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, one->ai_addr, one->ai_addrlen) == 0 &&
        listen(fd, settings->backlog) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* A name may be given the same address twice, as in /etc/hosts. */
static bool
address_repeated(const struct addrinfo *found, const struct addrinfo *one)
{
    for (; found != one; found = found->ai_next)
        if (found->ai_addrlen == one->ai_addrlen &&
            memcmp(found->ai_addr, one->ai_addr, one->ai_addrlen) == 0)
            return true;
    return false;
}

/* Whether an address was refused because the system has no such family. */
static bool
family_missing(const struct addrinfo *one, int error)
{
    return error == EAFNOSUPPORT ||
           (one->ai_family == AF_INET6 && error == EADDRNOTAVAIL);
}

static uint32_t
close_all(const int *fds, uint32_t count)
{
    while (count > 0)
        close(fds[--count]);
    return 0;
}

static uint32_t
listen_found(const struct loop_settings *settings, const struct addrinfo *found,
    bool anywhere, int *fds, const char **why)
{
    uint32_t count = 0;

    for (const struct addrinfo *one = found; one != NULL; one = one->ai_next) {
        if (address_repeated(found, one))
            continue;
        if (!anywhere && !is_loopback(one->ai_addr)) {
            *why = not_anywhere;
            return close_all(fds, count);
        }
        if (count == LISTEN_SOCKETS_MAX) {
            *why = "the name has too many addresses";
            return close_all(fds, count);
        }
        fds[count] = tcp_socket(settings, one);
        if (fds[count] >= 0) {
            count++;
            continue;
        }
        int error = errno;
        *why = strerror(error);
        if (!family_missing(one, error))
            return close_all(fds, count);
    }
    return count;
}

/* A socket for each address of the host's name. 0: `why` is set. */
static uint32_t
listen_tcp(const struct loop_settings *settings,
    const struct loop_address *address, bool anywhere, int *fds,
    const char **why)
{
    struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];

    snprintf(port, sizeof(port), "%u", address->port);
    int status = getaddrinfo(address->host, port, &hints, &found);
    if (status != 0) {
        *why = status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status);
        return 0;
    }
    uint32_t count = listen_found(settings, found, anywhere, fds, why);
    freeaddrinfo(found);
    return count;
}

/* Removes a socket that nobody listens on any more. */
static bool
unix_remove_stale(const struct sockaddr_un *address)
{
    struct stat status;

    if (stat(address->sun_path, &status) != 0)
        return true;
    if (!S_ISSOCK(status.st_mode)) {
        errno = EEXIST;
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int got = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    int why = got == 0 || errno == EAGAIN ? EADDRINUSE : errno;
    close(fd);
    /* It may be in use: another type of socket, or one that we may not use. */
    if (why != ECONNREFUSED && why != ENOENT) {
        errno = why;
        return false;
    }
    return unlink(address->sun_path) == 0 || errno == ENOENT;
}

static int
listen_unix(const struct loop_settings *settings, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path));
    if (!unix_remove_stale(&address))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
        listen(fd, settings->backlog) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

uint32_t
listen_on(const struct loop_settings *settings,
    const struct loop_address *address, bool anywhere, int *fds, char *error,
    size_t error_bytes)
{
    const char *why = "";

    if (address->is_path) {
        fds[0] = listen_unix(settings, address->host);
        if (fds[0] >= 0)
            return 1;
        snprintf(error, error_bytes, "cannot listen on %s: %s", address->host,
            strerror(errno));
        return 0;
    }
    uint32_t count = listen_tcp(settings, address, anywhere, fds, &why);
    if (count == 0) {
        bool v6 = strchr(address->host, ':') != NULL;
        snprintf(error, error_bytes, "cannot listen on %s%s%s:%u: %s",
            v6 ? "[" : "", address->host, v6 ? "]" : "", address->port, why);
    }
    return count;
}

/* A socket option; -1: `fd` is no socket. */
static int
option_of(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);

    if (getsockopt(fd, SOL_SOCKET, name, &value, &len) != 0)
        return -1;
    return value;
}

static bool
passed_is_local(int fd)
{
    struct sockaddr_storage bound = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(bound);

    return getsockname(fd, (struct sockaddr *)&bound, &len) == 0 &&
           is_loopback((struct sockaddr *)&bound);
}

/* The reason why the socket cannot be used; NULL: it can. */
static const char *
passed_unfit(int fd, bool anywhere)
{
    int family = option_of(fd, SO_DOMAIN);
    bool internet = family == AF_INET || family == AF_INET6;
    int flags = fcntl(fd, F_GETFL);

    if (family == -1)
        return strerror(errno);
    if (option_of(fd, SO_TYPE) != SOCK_STREAM)
        return "not a stream socket";
    if (internet ? option_of(fd, SO_PROTOCOL) != IPPROTO_TCP
                 : family != AF_UNIX)
        return "neither TCP nor a Unix socket";
    if (option_of(fd, SO_ACCEPTCONN) != 1)
        return "does not listen";
    if (!anywhere && !passed_is_local(fd))
        return not_anywhere;
    if (flags == -1 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return strerror(errno);
    return NULL;
}

bool
listen_take(const struct loop_socket *passed, bool anywhere, bool *tcp,
    char *error, size_t error_bytes)
{
    const char *why = passed_unfit(passed->fd, anywhere);

    if (why != NULL) {
        snprintf(error, error_bytes,
            "cannot listen on the passed socket %d, %s: %s", passed->fd,
            passed->name, why);
        return false;
    }
    *tcp = option_of(passed->fd, SO_DOMAIN) != AF_UNIX;
    return true;
}

void
listen_log(int fd, const char *whom)
{
    struct sockaddr_storage bound = {.ss_family = AF_UNIX};
    socklen_t len = sizeof(bound);
    char text[80];

    (void)getsockname(fd, (struct sockaddr *)&bound, &len);
    if (bound.ss_family == AF_UNIX) {
        struct sockaddr_un path = {.sun_family = AF_UNIX};
        memcpy(&path, &bound, len < sizeof(path) ? len : sizeof(path));
        if (path.sun_path[0] == '\0') /* an abstract name */
            path.sun_path[0] = '@';
        log_write(LOG_INFO, "listening", log_word("for", whom),
            log_span(
                "path", text_make(path.sun_path,
                            strnlen(path.sun_path, sizeof(path.sun_path)))));
        return;
    }
    listen_peer(&bound, len, text, sizeof(text));
    log_write(LOG_INFO, "listening", log_word("for", whom),
        log_word("address", text));
}
