/*
 * Addresses of the configuration, from text. config_address_text() is here too.
 */
#ifndef HOLDFAST_CONF_ADDRESS_H
#define HOLDFAST_CONF_ADDRESS_H

#include "conf/config.h"
#include "daemon/base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* What address_check_host() says of a text that is neither name nor number. */
extern const char address_host_expected[];

/* Whether `text` has letters, digits and bytes of `signs` alone. */
bool address_is_plain(struct text text, const char *signs);

/* NULL: `host` may be a name, or is a number, without brackets; else a static
 * text of what is wrong. */
const char *address_check_host(const char *host);

/* Reads "HOST:PORT" or "[IPV6]:PORT" into *out, whose bytes are zero. Returns
 * as address_check_host(). */
const char *address_read(
    struct text text, uint64_t port_min, struct config_address *out);

/* Whether `text` is a URL, or has a user before its host. */
bool address_is_url(struct text text);

#endif
