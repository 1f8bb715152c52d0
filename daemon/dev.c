/*
 * holdfastd --dev: a broker for a user's own tests, with a Redis of its own on
 * a free port of 127.0.0.1. It needs no configuration and leaves no file.
 *
 * The broker ends with its parent process: getppid() is compared every 20 ms.
 * PR_SET_PDEATHSIG would follow the thread that forked, and runtimes of other
 * languages end such threads. Our own Redis has PR_SET_PDEATHSIG: it ends with
 * the broker, also after a SIGKILL.
 *
 * Redis has a random password, which it reads with its configuration from a
 * pipe. So nobody else on the machine can use it.
 */
#include "daemon/process.h"

#include "conf/config.h"
#include "daemon/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_TRIES  5 /* somebody else may take the port first */
#define START_STEPS  1000
#define STEP_MS      10
#define LOOK_MS      20
#define READY_LOOKS  500
#define BACKLOG      1024
#define NO_PROGRAM   127
#define SECRET_BYTES 16

struct dev {
    pid_t parent;
    pid_t redis;
    uint16_t port;
    int fd; /* owned until dev_take(), and then -1 */
    char secret[2 * SECRET_BYTES + 1];
    struct loop *loop;  /* ref, from dev_attach() on */
    struct event *look; /* owned */
    uint32_t looks;     /* before the address is printed */
    bool told;          /* it is printed */
};

static struct sockaddr_in
local(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* A socket that listens, and its port. -1 with errno. */
static int
listen_at(uint16_t port, uint16_t *got)
{
    struct sockaddr_in address = local(port);
    socklen_t len = sizeof(address);
    int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (struct sockaddr *)&address, len) == 0 &&
        listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &len) == 0) {
        *got = ntohs(address.sin_port);
        return fd;
    }
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Becomes Redis. */
static void
redis_become(pid_t broker, int config)
{
    static const char *const programs[] = {"redis-server", "valkey-server"};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    sigset_t none;

    (void)setsid(); /* Ctrl-C is for the broker */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != broker || dup2(config, STDIN_FILENO) < 0 ||
        dup2(null, STDOUT_FILENO) < 0)
        _exit(1);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        (void)execlp(programs[i], programs[i], "-", (char *)NULL);
    _exit(NO_PROGRAM);
}

/* Forks Redis. False with errno. */
static bool
redis_fork(struct dev *dev, uint16_t port)
{
    char text[200];
    int ends[2];
    pid_t broker = getpid();

    int len = snprintf(text, sizeof(text),
        "bind 127.0.0.1\nport %u\nrequirepass %s\nsave \"\"\nappendonly no\n",
        port, dev->secret);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    bool good = write(ends[1], text, (size_t)len) == len; /* a pipe has room */
    dev->redis = good ? fork() : -1;
    if (dev->redis == 0)
        redis_become(broker, ends[0]);
    explicit_bzero(text, sizeof(text));
    close(ends[0]);
    close(ends[1]);
    return dev->redis > 0;
}

/* Whether the Redis there is ours: another one has not our password. */
static bool
redis_answers(const struct dev *dev, uint16_t port)
{
    const struct timeval patience = {.tv_sec = 1};
    struct sockaddr_in address = local(port);
    char text[sizeof(dev->secret) + 16];
    char answer[5];

    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    int len = snprintf(text, sizeof(text), "AUTH %s\r\n", dev->secret);
    bool good =
        connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        send(fd, text, (size_t)len, MSG_NOSIGNAL) == len &&
        recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) &&
        memcmp(answer, "+OK\r\n", sizeof(answer)) == 0;
    close(fd);
    return good;
}

/* Waits until Redis answers. False: it has ended, with that status, or is late:
 * -1. */
static bool
redis_wait(struct dev *dev, uint16_t port, int *status)
{
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000};

    for (int i = 0; i < START_STEPS; i++) {
        if (waitpid(dev->redis, status, WNOHANG) == dev->redis) {
            dev->redis = 0;
            return false;
        }
        if (redis_answers(dev, port))
            return true;
        (void)nanosleep(&step, NULL);
    }
    *status = -1;
    return false;
}

/* Starts Redis. 0: `error` says why it does not run; else its port. */
static uint16_t
redis_start(struct dev *dev, char *error, size_t error_bytes)
{
    uint16_t port = 0;
    int status = 0;

    for (int i = 0; i < START_TRIES && status != -1; i++) {
        int fd = listen_at(0, &port);
        close(fd);
        if (fd < 0 || !redis_fork(dev, port)) {
            snprintf(
                error, error_bytes, "cannot start Redis: %s", strerror(errno));
            return 0;
        }
        if (redis_wait(dev, port, &status))
            return port;
        if (status != -1 && WIFEXITED(status) &&
            WEXITSTATUS(status) == NO_PROGRAM) {
            snprintf(error, error_bytes,
                "--dev needs a redis-server in PATH, and there is none: "
                "install it (Debian: apt-get install redis-server), or name "
                "your own Redis in a configuration (-c FILE)");
            return 0;
        }
    }
    snprintf(error, error_bytes,
        status == -1 ? "redis-server does not answer"
                     : "redis-server ends at its start: see above");
    return 0;
}

/* The configuration of a broker that grants at once. */
static bool
configure(const struct dev *dev, uint16_t redis, struct config *config,
    char *error, size_t error_bytes)
{
    char text[400];

    _Static_assert(
        sizeof(dev->secret) <= sizeof(config->redis_password), "room");
    int len = snprintf(text, sizeof(text),
        "redis: {topology: single, nodes: ['127.0.0.1:%u'], settle: 0s}\n"
        "admin: {http: none}\n"
        "session: {stop_grace: 0s}\n"
        "log: {level: warn}\n",
        redis);
    if (!config_load_text(
            config, "--dev", text, (size_t)len, error, error_bytes))
        return false;
    memcpy(config->redis_password, dev->secret, sizeof(dev->secret));
    return true;
}

static bool
begin(struct dev *dev, uint16_t port, struct config *config, char *error,
    size_t error_bytes)
{
    uint8_t secret[SECRET_BYTES];

    dev->fd = listen_at(port, &dev->port);
    if (dev->fd < 0) {
        snprintf(error, error_bytes, "cannot listen on 127.0.0.1:%u: %s", port,
            strerror(errno));
        return false;
    }
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        abort();
    text_to_hex(dev->secret, secret, sizeof(secret));
    uint16_t redis = redis_start(dev, error, error_bytes);
    return redis != 0 && configure(dev, redis, config, error, error_bytes);
}

struct dev *
dev_create(
    uint16_t port, struct config *config, char *error, size_t error_bytes)
{
    struct dev *dev = calloc(1, sizeof(*dev));

    if (dev == NULL) {
        snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    dev->parent = getppid();
    if (!begin(dev, port, config, error, error_bytes))
        dev_destroy(&dev);
    return dev;
}

void
dev_take(struct dev *dev, struct activation *activation)
{
    memset(activation, 0, sizeof(*activation));
    activation->sockets[0] = (struct loop_socket){
        .fd = dev->fd, .name = "--dev", .use = SOCKET_CLIENTS};
    activation->count = 1;
    dev->fd = -1;
}

/* Prints the address once locks are granted. False: that lasts too long. */
static bool
tell(struct dev *dev)
{
    if (dev->told)
        return true;
    if (!loop_health(dev->loop)->ready)
        return ++dev->looks < READY_LOOKS;
    dev->told = true;
    printf("listening on 127.0.0.1:%u\n", dev->port);
    (void)fflush(stdout); /* the reader may have gone */
    return true;
}

static void
on_look(evutil_socket_t fd, short what, void *arg)
{
    struct dev *dev = arg;
    const char *why = NULL;

    (void)fd;
    (void)what;
    if (getppid() != dev->parent)
        why = "the parent process has ended";
    else if (waitpid(dev->redis, NULL, WNOHANG) != 0) /* also without SIGCHLD */
        why = "Redis has ended";
    else if (!tell(dev))
        why = "Redis cannot be used: see above";
    if (why == NULL)
        return;
    log_write(LOG_WARN, "stopping", log_quoted("why", text_from(why)));
    event_del(dev->look);
    loop_stop(dev->loop);
}

bool
dev_attach(struct dev *dev, struct loop *loop)
{
    static const struct timeval pause = {.tv_usec = LOOK_MS * 1000};

    if (dev == NULL)
        return true;
    dev->loop = loop;
    dev->look = event_new(loop_base(loop), -1, EV_PERSIST, on_look, dev);
    return dev->look != NULL && event_add(dev->look, &pause) == 0;
}

bool
dev_detach(struct dev *dev)
{
    if (dev != NULL && dev->look != NULL)
        event_free(dev->look);
    return dev == NULL || dev->told;
}

void
dev_destroy(struct dev **dev)
{
    if (*dev == NULL)
        return;
    if ((*dev)->fd >= 0)
        close((*dev)->fd);
    if ((*dev)->redis > 0) {
        (void)kill((*dev)->redis, SIGKILL);
        (void)waitpid((*dev)->redis, NULL, 0);
    }
    explicit_bzero((*dev)->secret, sizeof((*dev)->secret));
    free(*dev);
    *dev = NULL;
}
