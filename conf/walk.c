/*
 * libyaml's events to keys and values.
 *
 * A configuration needs a part of YAML only. Aliases, anchors, tags, a second
 * document, and keys that are not words are refused at their place. The walk
 * skips a refused key or value, so that all mistakes are reported at once. An
 * error of the YAML syntax ends it.
 *
 * A function that reads returns false if the walk cannot go on.
 */
#include "conf/walk.h"

#include "daemon/base/assert.h"
#include "daemon/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <yaml.h>

#define PATH_BYTES  256 /* longer paths are cut; no key is as long */
#define QUOTE_BYTES 80
#define DEPTH_MAX   16 /* of skipped nodes; libyaml is slow beyond */

struct reader {
    struct walk *walk; /* ref */
    struct text text;
    yaml_parser_t parser;
    yaml_event_t event;    /* the current one */
    char path[PATH_BYTES]; /* dotted, of the current key; no NUL */
    size_t path_len;
};

/* Begins the next line of errors: its place and room. A line end separates it
 * from the line before. */
static char *
next_line(struct walk *walk, size_t *room)
{
    size_t len = strlen(walk->error);

    require(len < walk->error_bytes);
    if (len > 0 && len + 1 < walk->error_bytes) {
        walk->error[len++] = '\n';
        walk->error[len] = '\0';
    }
    *room = walk->error_bytes - len;
    return walk->error + len;
}

bool
walk_fail(struct walk *walk, struct walk_place place, const char *format, ...)
{
    va_list arguments;
    size_t room;
    int len;

    walk->mistakes++;
    if (walk->on_mistake != NULL)
        walk->on_mistake(walk);
    if (walk->mistakes > WALK_MISTAKES_MAX + 1)
        return false;
    char *line = next_line(walk, &room);
    if (walk->mistakes > WALK_MISTAKES_MAX) {
        snprintf(line, room, "%s: more mistakes follow; the first %d are told",
            walk->file, WALK_MISTAKES_MAX);
        return false;
    }
    len = snprintf(
        line, room, "%s:%zu:%zu: ", walk->file, place.line, place.column);
    if (len < 0 || (size_t)len >= room)
        return false;
    va_start(arguments, format);
    vsnprintf(line + len, room - (size_t)len, format, arguments);
    va_end(arguments);
    return false;
}

static struct walk_place
place_of(yaml_mark_t mark)
{
    return (struct walk_place){mark.line + 1, mark.column + 1};
}

/* libyaml's own place is wrong after invalid UTF-8. */
static struct walk_place
place_of_byte(struct text text, size_t offset)
{
    struct walk_place place = {1, 1};

    for (size_t i = 0; i < offset && i < text.len; i++) {
        unsigned char byte = (unsigned char)text.at[i];

        if (byte == '\n') {
            place.line++;
            place.column = 1;
        } else if ((byte & 0xc0) != 0x80) {
            place.column++;
        }
    }
    return place;
}

static bool
fail_here(struct reader *reader, const char *what)
{
    char quoted[QUOTE_BYTES];
    struct walk_place place = place_of(reader->event.start_mark);

    if (reader->path_len == 0)
        return walk_fail(reader->walk, place, "%s", what);
    log_quote(
        quoted, sizeof(quoted), text_make(reader->path, reader->path_len));
    /* log_quote() escapes unknown names. The path is printed without its
     * quotes. */
    return walk_fail(reader->walk, place, "%.*s: %s", (int)strlen(quoted) - 2,
        quoted + 1, what);
}

static bool
fail_syntax(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    struct walk_place place = place_of(parser->problem_mark);

    if (parser->error == YAML_MEMORY_ERROR || parser->problem == NULL)
        return walk_fail(reader->walk, place, "out of memory");
    if (parser->error == YAML_READER_ERROR)
        return walk_fail(reader->walk,
            place_of_byte(reader->text, parser->problem_offset),
            "not UTF-8: %s", parser->problem);
    return walk_fail(reader->walk, place, "not YAML: %s", parser->problem);
}

/* The error if the node has a tag or an anchor, or is an alias; else NULL. */
static const char *
objection(const struct reader *reader)
{
    const yaml_event_t *event = &reader->event;
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;

    if (event->type == YAML_ALIAS_EVENT)
        return "an alias (*) is not allowed here";
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor != NULL)
        return "an anchor (&) is not allowed here";
    return tag != NULL ? "a tag (!) is not allowed here" : NULL;
}

static bool
next(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    return yaml_parser_parse(&reader->parser, &reader->event) ||
           fail_syntax(reader);
}

static bool
event_is(const struct reader *reader, yaml_event_type_t type)
{
    return reader->event.type == type;
}

static struct text
event_text(const struct reader *reader)
{
    return text_make((const char *)reader->event.data.scalar.value,
        reader->event.data.scalar.length);
}

/* Whether there is no value after the colon or the dash, or "~" or "null". */
static bool
event_is_null(const struct reader *reader)
{
    struct text text = event_text(reader);

    if (reader->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    return text.len == 0 || text_equal(text, TEXT("~")) ||
           text_equal_nocase(text, TEXT("null"));
}

/* Skips the node that the current event begins. */
static bool
skip(struct reader *reader)
{
    size_t depth = 0;

    for (;;) {
        if (event_is(reader, YAML_SEQUENCE_START_EVENT) ||
            event_is(reader, YAML_MAPPING_START_EVENT))
            depth++;
        else if (event_is(reader, YAML_SEQUENCE_END_EVENT) ||
                 event_is(reader, YAML_MAPPING_END_EVENT))
            depth--;
        require(depth <= DEPTH_MAX + 1); /* libyaml pairs starts and ends */
        if (depth == 0)
            return true;
        if (depth > DEPTH_MAX)
            return fail_here(reader, "nested too deeply");
        if (!next(reader))
            return false;
    }
}

static bool
refuse(struct reader *reader, const char *what)
{
    fail_here(reader, what);
    return skip(reader);
}

static bool
read_value(struct reader *reader)
{
    if (!event_is(reader, YAML_SCALAR_EVENT))
        return refuse(reader, "one value expected");
    if (event_is_null(reader))
        return refuse(reader, "no value given");
    (void)reader->walk->on_value(
        reader->walk, event_text(reader), place_of(reader->event.start_mark));
    return true;
}

static bool read_node(struct reader *reader, enum walk_shape shape);

/* One section of a list of sections. */
static bool
read_item(struct reader *reader)
{
    if (!event_is(reader, YAML_MAPPING_START_EVENT))
        return refuse(reader, "keys expected, \"name: value\" each");
    if (!reader->walk->on_item(reader->walk,
            text_make(reader->path, reader->path_len),
            place_of(reader->event.start_mark)))
        return skip(reader);
    return read_node(reader, WALK_SECTION);
}

/* A list of values, or of sections. */
static bool
read_list(struct reader *reader, bool items)
{
    if (event_is(reader, YAML_SCALAR_EVENT) && !items)
        return read_value(reader);
    if (event_is(reader, YAML_SCALAR_EVENT) && event_is_null(reader))
        return true;
    if (!event_is(reader, YAML_SEQUENCE_START_EVENT))
        return refuse(reader, items ? "a list of sections expected"
                                    : "a list of values expected");
    while (next(reader)) {
        if (event_is(reader, YAML_SEQUENCE_END_EVENT))
            return true;
        if (!(items ? read_item(reader) : read_node(reader, WALK_VALUE)))
            return false;
    }
    return false;
}

static void
path_append(struct reader *reader, struct text text)
{
    require(reader->path_len <= sizeof(reader->path));
    size_t room = sizeof(reader->path) - reader->path_len;
    size_t len = text.len < room ? text.len : room;

    if (len > 0)
        memcpy(reader->path + reader->path_len, text.at, len);
    reader->path_len += len;
}

/* The key is the current event. */
static bool
read_pair(struct reader *reader)
{
    size_t section_len = reader->path_len;
    const char *what = objection(reader);
    enum walk_shape shape;
    struct text name;

    if (what == NULL && !event_is(reader, YAML_SCALAR_EVENT))
        what = "a key must be a word";
    if (what != NULL)
        return refuse(reader, what) && next(reader) && skip(reader);
    if (section_len > 0)
        path_append(reader, TEXT("."));
    name = event_text(reader);
    path_append(reader, name);
    bool known = reader->walk->on_key(reader->walk,
        text_make(reader->path, reader->path_len), name,
        place_of(reader->event.start_mark), &shape);
    bool done =
        next(reader) && (known ? read_node(reader, shape) : skip(reader));
    require(reader->path_len >= section_len);
    reader->path_len = section_len;
    return done;
}

static bool
read_section(struct reader *reader)
{
    /* All keys of the section may be commented out. */
    if (event_is(reader, YAML_SCALAR_EVENT) && event_is_null(reader))
        return true;
    if (!event_is(reader, YAML_MAPPING_START_EVENT))
        return refuse(reader, "keys expected, \"name: value\" each");
    while (next(reader)) {
        if (event_is(reader, YAML_MAPPING_END_EVENT))
            return true;
        if (!read_pair(reader))
            return false;
    }
    return false;
}

static bool
read_node(struct reader *reader, enum walk_shape shape)
{
    const char *what = objection(reader);

    if (what != NULL)
        return refuse(reader, what);
    switch (shape) {
    case WALK_SECTION:
        return read_section(reader);
    case WALK_VALUE:
        return read_value(reader);
    case WALK_LIST:
        return read_list(reader, false);
    case WALK_ITEMS:
        return read_list(reader, true);
    }
    return false;
}

/* An empty file has no document; all keys have their defaults. */
static bool
read_stream(struct reader *reader)
{
    if (!next(reader) || !next(reader)) /* the stream's start, the document's */
        return false;
    if (event_is(reader, YAML_STREAM_END_EVENT))
        return true;
    if (!next(reader) || !read_node(reader, WALK_SECTION))
        return false;
    if (!next(reader) || !next(reader)) /* the document's end, the stream's */
        return false;
    if (!event_is(reader, YAML_STREAM_END_EVENT))
        return fail_here(reader, "a second document is not allowed");
    return true;
}

/* Skips a byte order mark, which libyaml would count as a column. */
static struct text
skip_mark(struct text text)
{
    bool mark = text_starts_with(text, TEXT("\xef\xbb\xbf"));

    return mark ? text_make(text.at + 3, text.len - 3) : text;
}

bool
walk_text(struct walk *walk, struct text text)
{
    struct reader reader = {.walk = walk};
    bool done;

    text = skip_mark(text);
    reader.text = text;
    if (!yaml_parser_initialize(&reader.parser))
        return walk_fail(walk, (struct walk_place){1, 1}, "out of memory");
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(
        &reader.parser, (const unsigned char *)text.at, text.len);
    done = read_stream(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return done;
}
