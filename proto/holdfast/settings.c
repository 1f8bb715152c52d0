/*
 * The options of a connection, and whether they fit each other. Neither reads a
 * file.
 */
#include "proto/holdfast/command.h"

#include <string.h>

/* Whether it may be the name of a file, a user or a host. */
static bool
is_one_line(const char *value)
{
    return value == NULL || (strpbrk(value, "\n\r") == NULL &&
                                strncmp(value, "-----BEGIN", 10) != 0);
}

bool
settings_fit(const struct settings *settings)
{
    const char *address = settings->address;

    const struct {
        const char *option;
        const char *value;
    } values[] = {
        {"-a, HOLDFAST_ADDR", address},
        {"-u, HOLDFAST_USER", settings->user},
        {"-s, HOLDFAST_SECRET_FILE", settings->secret_file},
        {"--tls-ca, HOLDFAST_TLS_CA", settings->tls_ca},
        {"--tls-cert, HOLDFAST_TLS_CERT", settings->tls_cert},
        {"--tls-key, HOLDFAST_TLS_KEY", settings->tls_key},
        {"--tls-name, HOLDFAST_TLS_NAME", settings->tls_name},
        {"--tls-verify, HOLDFAST_TLS_VERIFY", settings->tls_verify},
    };

    for (size_t i = 0; i < COUNT(values); i++)
        if (!is_one_line(values[i].value)) {
            complain("%s: one line expected: the name of a file, not its text",
                values[i].option);
            return false;
        }
    if (address != NULL &&
        (strstr(address, "://") != NULL ||
            (strchr(address, '@') != NULL && strchr(address, '/') == NULL))) {
        complain("-a, HOLDFAST_ADDR: a URL or a user is not supported; write "
                 "HOST:PORT, and give the user with -u and the file of the "
                 "secret with -s");
        return false;
    }
    return tls_fit(settings);
}

bool
secret_fit(const struct settings *settings)
{
    if (settings->user == NULL && settings->secret_file == NULL)
        return true;
    if (settings->user == NULL) {
        complain("-s: a secret without a user; give -u or HOLDFAST_USER");
        return false;
    }
    if (settings->secret_file == NULL) {
        complain(
            "-u: a user without a secret; give -s or HOLDFAST_SECRET_FILE");
        return false;
    }
    size_t len = strlen(settings->user);
    if (len == 0 || len > HOLDFAST_USER_MAX) {
        complain("-u: a user of %zu bytes; it must have 1 to %d", len,
            HOLDFAST_USER_MAX);
        return false;
    }
    return true;
}
