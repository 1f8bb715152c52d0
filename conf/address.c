/*
 * Addresses of the configuration, from text and to text. It resolves no names.
 */
#include "conf/value.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define ZONE_BYTES_MAX 15 /* of an interface's name, IFNAMSIZ - 1 */

const char address_host_expected[] = "a host's name or number expected";

static const char address_expected[] = "HOST:PORT or [IPV6]:PORT expected";

bool
address_is_plain(struct text text, const char *signs)
{
    for (size_t i = 0; i < text.len; i++) {
        char byte = text.at[i];
        bool plain = (byte >= '0' && byte <= '9') ||
                     (byte >= 'A' && byte <= 'Z') ||
                     (byte >= 'a' && byte <= 'z');

        if (!plain && (byte == '\0' || strchr(signs, byte) == NULL))
            return false;
    }
    return true;
}

/* A name or an IPv4 address. Returns NULL, or the error. */
static const char *
host_check(const char *host)
{
    struct in_addr number;
    struct text text = text_from(host);

    if (text.len == 0)
        return "no host; write 0.0.0.0 or [::] for all addresses";
    if (memchr(host, ':', text.len) != NULL)
        return "an IPv6 address needs brackets: [::1]:4653";
    if (!address_is_plain(text, "._-") || host[0] == '-' || host[0] == '.' ||
        strstr(host, "..") != NULL)
        return address_host_expected;
    /* A host of digits and dots must be an IPv4 address. */
    if (strspn(host, "0123456789.") == text.len &&
        inet_pton(AF_INET, host, &number) != 1)
        return "not an IPv4 address";
    return NULL;
}

/* "::1" or "fe80::1%eth0". Returns NULL, or the error. */
static const char *
host6_check(const char *host)
{
    char number[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    const char *zone = strchr(host, '%');
    size_t len = zone == NULL ? strlen(host) : (size_t)(zone - host);

    if (len >= sizeof(number))
        return "not an IPv6 address";
    memcpy(number, host, len);
    number[len] = '\0';
    if (inet_pton(AF_INET6, number, &ignored) != 1)
        return "not an IPv6 address";
    if (zone != NULL && (zone[1] == '\0' || strlen(zone + 1) > ZONE_BYTES_MAX ||
                            !address_is_plain(text_from(zone + 1), "._-")))
        return "not an IPv6 address with a zone";
    return NULL;
}

const char *
address_check_host(const char *host)
{
    return strchr(host, ':') != NULL ? host6_check(host) : host_check(host);
}

const char *
address_read(struct text text, uint64_t port_min, struct config_address *out)
{
    bool brackets = text.len > 0 && text.at[0] == '[';
    size_t colon = text.len;
    struct text host;
    uint64_t port;

    while (colon > 0 && text.at[colon - 1] != ':')
        colon--;
    if (colon == 0)
        return address_expected;
    host = text_make(text.at, colon - 1);
    if (brackets && (host.len < 2 || host.at[host.len - 1] != ']'))
        return address_expected;
    if (brackets)
        host = text_make(host.at + 1, host.len - 2);
    if (memchr(text.at, '\0', text.len) != NULL)
        return address_expected;
    if (host.len >= sizeof(out->host))
        return "the host is longer than 255 bytes";
    if (host.len == 0 && !brackets && port_min > 0)
        return "no host; write 127.0.0.1 for this machine";
    memcpy(out->host, host.at, host.len);
    if (!text_to_u64(
            text_make(text.at + colon, text.len - colon), UINT16_MAX, &port) ||
        port < port_min)
        return port_min == 0 ? "a port from 0 to 65535 expected"
                             : "a port from 1 to 65535 expected";
    out->port = (uint16_t)port;
    const char *reason =
        brackets ? host6_check(out->host) : host_check(out->host);
    return reason == address_host_expected ? address_expected : reason;
}

bool
address_is_url(struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] == '@' ||
            text_starts_with(text_make(text.at + i, text.len - i), TEXT("://")))
            return true;
    return false;
}

const char *
config_address_text(
    const struct config_address *address, char *out, size_t out_bytes)
{
    if (strchr(address->host, '/') != NULL)
        snprintf(out, out_bytes, "%s", address->host);
    else if (strchr(address->host, ':') != NULL)
        snprintf(out, out_bytes, "[%s]:%u", address->host, address->port);
    else
        snprintf(out, out_bytes, "%s:%u", address->host, address->port);
    return out;
}
