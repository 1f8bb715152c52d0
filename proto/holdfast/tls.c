/*
 * The transport of connections: TLS, if one of its options is given. The files
 * are read once, before any wait, so that the guard does not need them.
 */
#include "proto/holdfast/command.h"
#include "proto/tls/holdfast_tls.h"

#include <string.h>

static bool
tls_asked(const struct settings *settings)
{
    return settings->tls || settings->tls_ca != NULL ||
           settings->tls_cert != NULL || settings->tls_key != NULL ||
           settings->tls_name != NULL || settings->tls_verify != NULL;
}

/* Reads the options and the environment; false after a complaint. */
static bool
options_read(
    const struct settings *settings, struct holdfast_tls_options *options)
{
    const char *verify =
        settings->tls_verify != NULL ? settings->tls_verify : "full";

    if (settings->address != NULL && strchr(settings->address, '/') != NULL) {
        complain("%s: TLS is not supported for the path of a socket; write "
                 "HOST:PORT",
            settings->address);
        return false;
    }
    if ((settings->tls_cert == NULL) != (settings->tls_key == NULL)) {
        complain("--tls-cert and --tls-key: one without the other; give both");
        return false;
    }
    if (strcmp(verify, "full") != 0 && strcmp(verify, "ca") != 0) {
        complain("--tls-verify: '%s' is not full or ca", verify);
        return false;
    }
    *options = (struct holdfast_tls_options){
        .ca = settings->tls_ca,
        .cert = settings->tls_cert,
        .key = settings->tls_key,
        .server_name = settings->tls_name,
        .verify =
            strcmp(verify, "ca") == 0 ? HOLDFAST_TLS_CA : HOLDFAST_TLS_FULL,
    };
    return true;
}

bool
tls_fit(const struct settings *settings)
{
    struct holdfast_tls_options unused;

    return !tls_asked(settings) || options_read(settings, &unused);
}

const char *
tls_hint(const struct settings *settings)
{
    bool path =
        settings->address != NULL && strchr(settings->address, '/') != NULL;

    return path || tls_asked(settings) ? ""
                                       : "; if it is a TLS port, give --tls";
}

bool
tls_take(const struct settings *settings, struct holdfast_options *options)
{
    static struct holdfast_tls *tls; /* never freed */
    struct holdfast_tls_options asked;
    char why[512];

    if (!tls_asked(settings))
        return true;
    if (tls == NULL) {
        if (!options_read(settings, &asked))
            return false;
        tls = holdfast_tls_create(&asked, why, sizeof(why));
        if (tls == NULL) {
            complain("TLS: %s", why);
            return false;
        }
    }
    options->transport = holdfast_tls_transport(tls);
    return true;
}
