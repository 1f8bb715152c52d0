/*
 * Addresses to peers: "HOST:PORT", "[V6]:PORT", "HOST", a socket's path, or
 * several of these with commas. It blocks only to resolve a name.
 */
#define _GNU_SOURCE 1

#include "proto/clients/c/link.h"
#include "proto/clients/c/pending.h"

#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#define PORT_DEFAULT  "4653"
#define ADDRESS_BYTES 300 /* of a host with brackets and port */

/* False: there is no room, which is no error. */
static bool
peer_add(struct holdfast *h, const void *address, socklen_t len, size_t origin)
{
    if (h->peer_count == CLIENT_PEERS || len > sizeof(h->peers[0].address))
        return false;
    struct holdfast_peer *peer = &h->peers[h->peer_count++];
    memcpy(&peer->address, address, len);
    peer->len = len;
    peer->origin = origin;
    return true;
}

static enum holdfast_status
resolve_path(struct holdfast *h, const char *path, size_t origin)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    size_t len = strlen(path);

    if (len >= sizeof(local.sun_path) || h->transport != NULL)
        return HOLDFAST_BAD_ADDRESS;
    memcpy(local.sun_path, path, len + 1);
    return peer_add(h, &local, sizeof(local), origin) ? HOLDFAST_SUCCESS
                                                      : HOLDFAST_BAD_ADDRESS;
}

/* Splits "HOST:PORT" or "[V6]:PORT". Without a port *port stays. False: the
 * address is malformed. */
static bool
address_split(
    const char *address, char host[static CLIENT_HOST_BYTES], const char **port)
{
    const char *start = address;
    const char *end;

    if (address[0] == '[') {
        start = address + 1;
        end = strchr(start, ']');
        if (end == NULL || (end[1] != ':' && end[1] != '\0'))
            return false;
        if (end[1] == ':')
            *port = end + 2;
    } else {
        end = strchr(start, ':');
        if (end == NULL)
            end = start + strlen(start);
        else if (strchr(end + 1, ':') == NULL)
            *port = end + 1;
        else
            return false;
    }
    size_t len = (size_t)(end - start);
    if (len == 0 || len >= CLIENT_HOST_BYTES)
        return false;
    memcpy(host, start, len);
    host[len] = '\0';

    uint64_t number;
    return holdfast_number(*port, &number) && number > 0 && number < 65536;
}

static enum holdfast_status
resolve_one(struct holdfast *h, const char *address, size_t origin)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *port = h->transport != NULL ? h->transport->port : PORT_DEFAULT;
    char *host = h->hosts[origin];
    size_t before = h->peer_count;

    if (strchr(address, '/') != NULL)
        return resolve_path(h, address, origin);
    if (!address_split(address, host, &port))
        return HOLDFAST_BAD_ADDRESS;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed != 0)
        return failed == EAI_MEMORY ? HOLDFAST_NO_MEMORY : HOLDFAST_NO_HOST;
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next)
        (void)peer_add(h, at->ai_addr, at->ai_addrlen, origin);
    freeaddrinfo(found);
    return h->peer_count > before ? HOLDFAST_SUCCESS : HOLDFAST_NO_HOST;
}

/* An address of the list; a ref. */
struct part {
    const char *start;
    size_t len;
};

/* Returns the number of addresses; 0: too many, or one is too long. */
static size_t
list_split(const char *list, struct part *parts, size_t max)
{
    const char *at = list;
    size_t count = 0;

    for (;;) {
        size_t len = strcspn(at, ",");

        if (count == max || len >= ADDRESS_BYTES)
            return 0;
        parts[count++] = (struct part){at, len};
        if (at[len] == '\0')
            return count;
        at += len + 1;
    }
}

/*
 * A random order spreads clients over the brokers, also when one of them ends.
 */
static void
list_shuffle(struct holdfast *h, struct part *parts, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)holdfast_random(h, i);
        struct part part = parts[i - 1];

        parts[i - 1] = parts[other];
        parts[other] = part;
    }
}

enum holdfast_status
holdfast_link_resolve(struct holdfast *h, const char *address)
{
    struct part parts[CLIENT_ADDRESSES];
    char one[ADDRESS_BYTES];
    size_t count = list_split(address, parts, CLIENT_ADDRESSES);

    assert(h->peer_count == 0); /* only once for a connection */
    if (count == 0)
        return HOLDFAST_BAD_ADDRESS;
    list_shuffle(h, parts, count);
    for (size_t i = 0; i < count; i++) {
        memcpy(one, parts[i].start, parts[i].len);
        one[parts[i].len] = '\0';
        enum holdfast_status status = resolve_one(h, one, i);
        if (status != HOLDFAST_SUCCESS && status != HOLDFAST_NO_HOST)
            return status;
    }
    return h->peer_count > 0 ? HOLDFAST_SUCCESS : HOLDFAST_NO_HOST;
}
