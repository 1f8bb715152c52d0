/*
 * Secrets. The command's own secret comes from a file, never from the command
 * line, which every user of the machine can read. The command secret makes or
 * reads the secret of a broker's user, and hashes it.
 *
 * The file is read once, since it may be a pipe. A secret is overwritten after
 * its last use, except the secret of connections.
 */
#define _GNU_SOURCE 1

#include "daemon/base/secret.h"
#include "daemon/base/assert.h"
#include "daemon/base/users.h"
#include "proto/holdfast/options.h"
#include "proto/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <termios.h>
#include <unistd.h>

#define NEW_BYTES 32 /* of randomness in a secret that is made */

/* The bytes of the input, then the secret in it with a NUL. */
struct line {
    char bytes[SECRET_FILE_BYTES + 1];
    size_t len;
};

/* Reads the input to its end; of a terminal one line. False: see errno. */
static bool
line_read(int fd, struct line *line)
{
    bool terminal = isatty(fd);
    ssize_t got = 1;

    line->len = 0;
    while (got > 0 && line->len < SECRET_FILE_BYTES &&
           !(terminal && memchr(line->bytes, '\n', line->len) != NULL)) {
        got = read(fd, line->bytes + line->len, SECRET_FILE_BYTES - line->len);
        if (got > 0)
            line->len += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    return got >= 0;
}

/* Cuts the line to the secret, of at least `min` bytes. False: `why` says why
 * not. */
static bool
line_take(struct line *line, size_t min, char *why, size_t why_bytes)
{
    struct text secret;

    if (!secret_read(text_make(line->bytes, line->len), min, USER_SECRET_MAX,
            &secret, why, why_bytes))
        return false;
    require(secret.len < sizeof(line->bytes));
    memmove(line->bytes, secret.at, secret.len);
    line->len = secret.len;
    line->bytes[line->len] = '\0';
    return true;
}

/* --- the command's own ---------------------------------------------------- */

static bool
file_read(const char *path, struct line *line)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool done = fd >= 0 && line_read(fd, line);
    char why[128];

    if (!done) /* without the name, which may be the secret itself */
        complain("-s, HOLDFAST_SECRET_FILE: the file cannot be read: %s",
            strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    if (done && !line_take(line, 1, why, sizeof(why))) {
        complain("the secret in %s: the file %s", path, why);
        done = false;
    }
    if (!done)
        explicit_bzero(line, sizeof(*line));
    return done;
}

bool
secret_take(const struct settings *settings, struct holdfast_options *options)
{
    /* Copies, since the guard overwrites its arguments. */
    static char user[HOLDFAST_USER_MAX + 1];
    static struct line secret;

    if (settings->user == NULL && settings->secret_file == NULL)
        return true;
    require(settings->user != NULL && settings->secret_file != NULL);
    if (secret.len == 0) {
        if (!file_read(settings->secret_file, &secret))
            return false;
        memcpy(user, settings->user, strlen(settings->user) + 1);
    }
    options->user = user;
    options->secret = secret.bytes;
    return true;
}

/* --- for users of brokers ------------------------------------------------- */

/* Reads the secret from the input; a terminal does not echo it. False after a
 * complaint. */
static bool
secret_ask(struct line *line)
{
    struct termios shown;
    bool terminal = tcgetattr(STDIN_FILENO, &shown) == 0;

    if (terminal) {
        struct termios hidden = shown;
        hidden.c_lflag &= (tcflag_t)~ECHO;
        /* TCSAFLUSH drops earlier typing, so the question comes after. */
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
        (void)fputs("Secret: ", stderr);
    }
    char why[128];
    bool done = line_read(STDIN_FILENO, line);
    if (!done)
        (void)snprintf(why, sizeof(why), "cannot be read: %s", strerror(errno));
    done = done && line_take(line, USER_SECRET_MIN, why, sizeof(why));
    if (terminal) {
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
        (void)fputc('\n', stderr);
    }
    if (!done)
        complain("secret: the input %s", why);
    return done;
}

/* Makes a secret and writes it to a new file. False after a complaint. */
static bool
secret_make(const char *path, struct line *line)
{
    uint8_t random[NEW_BYTES];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        complain("secret: no randomness: %s", strerror(errno));
        return false;
    }
    text_to_hex(line->bytes, random, sizeof(random));
    explicit_bzero(random, sizeof(random));
    line->len = 2 * sizeof(random);
    line->bytes[line->len] = '\n';
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool done = fd >= 0 &&
                write(fd, line->bytes, line->len + 1) == (ssize_t)line->len + 1;
    if (fd >= 0 && (close(fd) != 0 || !done)) {
        done = false;
        (void)unlink(path);
    }
    if (!done)
        complain("secret: %s: %s", path, strerror(errno));
    return done;
}

/* Prints the user's line for the file of users; the exit status. */
static int
secret_print(const char *user, const struct line *line)
{
    uint8_t salt[USER_SALT_BYTES];
    char hashed[USER_HASHED_BYTES];
    char name[3 * USER_NAME_MAX];

    size_t len = percent_encode(text_from(user), name, sizeof(name));
    if (getrandom(salt, sizeof(salt), 0) != (ssize_t)sizeof(salt)) {
        complain("secret: no randomness: %s", strerror(errno));
        return STATUS_TROUBLE;
    }
    user_hash_text(salt, text_make(line->bytes, line->len), hashed);
    /* A line that begins with # is a comment. */
    bool hash = name[0] == '#';
    (void)printf("%s%.*s secret=%s\n", hash ? "%23" : "", (int)len - hash,
        name + hash, hashed);
    return STATUS_FINE;
}

int
command_secret(struct settings *settings, char **argv)
{
    const char *path = NULL;
    const struct option options[] = {
        {.name = "new", .max = 4095, .text = &path}};
    struct line line = {.len = 0};
    struct words words;

    if (!words_take(settings, "secret", options, 1, argv, &words))
        return words.status;
    if (words.word[0][0] == '\0' || strlen(words.word[0]) > USER_NAME_MAX) {
        complain("secret: a USER must have 1 to %d bytes", USER_NAME_MAX);
        return STATUS_USAGE;
    }
    bool made = path != NULL ? secret_make(path, &line) : secret_ask(&line);
    int status = made ? secret_print(words.word[0], &line) : STATUS_TROUBLE;
    if (made && path != NULL && status != STATUS_FINE)
        (void)unlink(path); /* its hash was not printed */
    explicit_bzero(&line, sizeof(line));
    return status;
}
