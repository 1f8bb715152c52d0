/*
 * Addresses of the configuration, from text. It also implements
 * config_address_text().
 */
#ifndef HOLDFAST_CONF_ADDRESS_H
#define HOLDFAST_CONF_ADDRESS_H

#include "conf/config.h"
#include "daemon/base/text.h"

#include <stdbool.h>
#include <stdint.h>

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
