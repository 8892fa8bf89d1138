/* runtime/bind/json.c -- JSON (RFC 8259) to Lua values: file headers, which come from
** anywhere. Strict; integers that fit in 64 bits stay exact. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

#define MAX_DEPTH 100

typedef struct parser {
  lua_State *L;
  const char *start, *at, *end;
  int depth;
  const char *problem; /* NULL: none so far */
} parser;

static bool parse_value(parser *p);

static bool fail(parser *p, const char *problem) {
  if (p->problem == NULL) p->problem = problem;
  return false;
}

static void skip_blanks(parser *p) {
  while (p->at < p->end &&
         (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) {
    p->at++;
  }
}

/* Is c next? Then step over it. */
static bool accept(parser *p, char c) {
  if (p->at == p->end || *p->at != c) return false;
  p->at++;
  return true;
}

static bool is_digit(const parser *p) {
  return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

/* ---- strings ---- */

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* Four hexadecimal digits; -1: there are none. */
static long hex_four(parser *p) {
  long x = 0;
  if (p->end - p->at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    const int digit = hex_digit(*p->at++);
    if (digit < 0) return -1;
    x = x * 16 + digit;
  }
  return x;
}

static void add_utf8(luaL_Buffer *b, long c) {
  if (c < 0x80) {
    luaL_addchar(b, (char)c);
    return;
  }
  if (c < 0x800) {
    luaL_addchar(b, (char)(0xC0 | c >> 6));
  } else {
    if (c < 0x10000) {
      luaL_addchar(b, (char)(0xE0 | c >> 12));
    } else {
      luaL_addchar(b, (char)(0xF0 | c >> 18));
      luaL_addchar(b, (char)(0x80 | (c >> 12 & 0x3F)));
    }
    luaL_addchar(b, (char)(0x80 | (c >> 6 & 0x3F)));
  }
  luaL_addchar(b, (char)(0x80 | (c & 0x3F)));
}

/* What follows \u, of two escapes where the first is half of a pair. */
static bool parse_unicode(parser *p, luaL_Buffer *b) {
  long c = hex_four(p);
  if (c < 0) return fail(p, "four hexadecimal digits expected after \\u");
  if (c >= 0xDC00 && c < 0xE000) return fail(p, "half a surrogate pair");
  if (c >= 0xD800 && c < 0xDC00) {
    if (!accept(p, '\\') || !accept(p, 'u')) return fail(p, "half a surrogate pair");
    const long low = hex_four(p);
    if (low < 0xDC00 || low >= 0xE000) return fail(p, "half a surrogate pair");
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  }
  add_utf8(b, c);
  return true;
}

static bool parse_escape(parser *p, luaL_Buffer *b) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  if (p->at == p->end) return fail(p, "unfinished string");
  const char c = *p->at++;
  if (c == 'u') return parse_unicode(p, b);
  const char *name = c != '\0' ? strchr(names, c) : NULL;
  if (name == NULL) return fail(p, "unknown escape in a string");
  luaL_addchar(b, values[name - names]);
  return true;
}

/* Push a string; its quote has been read. */
static bool parse_string(parser *p) {
  luaL_Buffer b;
  luaL_buffinit(p->L, &b);
  for (;;) {
    const char *from = p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' &&
           (unsigned char)*p->at >= 0x20) {
      p->at++;
    }
    luaL_addlstring(&b, from, (size_t)(p->at - from));
    if (p->at == p->end) return fail(p, "unfinished string");
    const char c = *p->at++;
    if (c == '"') break;
    if (c != '\\') {
      p->at--;
      return fail(p, "control character in a string");
    }
    if (!parse_escape(p, &b)) return false;
  }
  luaL_pushresult(&b);
  return true;
}

/* ---- numbers ---- */

static bool skip_digits(parser *p) {
  if (!is_digit(p)) return fail(p, "digit expected");
  while (is_digit(p)) p->at++;
  return true;
}

static bool parse_number(parser *p) {
  const char *from = p->at;
  accept(p, '-');
  if (!accept(p, '0') && !skip_digits(p)) return false;
  if (accept(p, '.') && !skip_digits(p)) return false;
  if (accept(p, 'e') || accept(p, 'E')) {
    if (!accept(p, '+')) accept(p, '-');
    if (!skip_digits(p)) return false;
  }
  /* Lua reads the same notation, and turns integers that are too large into floats. */
  const size_t n = (size_t)(p->at - from);
  lua_pushlstring(p->L, from, n);
  if (lua_stringtonumber(p->L, lua_tostring(p->L, -1)) != n + 1) {
    return fail(p, "malformed number");
  }
  lua_remove(p->L, -2);
  return true;
}

/* ---- values ---- */

static bool parse_word(parser *p, const char *word) {
  const size_t n = strlen(word);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) {
    return fail(p, "value expected");
  }
  p->at += n;
  return true;
}

/* Push a table; the bracket has been read. */
static bool parse_array(parser *p) {
  lua_newtable(p->L);
  skip_blanks(p);
  if (accept(p, ']')) return true;
  for (lua_Integer i = 1;; i++) {
    if (!parse_value(p)) return false;
    lua_rawseti(p->L, -2, i);
    skip_blanks(p);
    if (accept(p, ']')) return true;
    if (!accept(p, ',')) return fail(p, "',' or ']' expected");
  }
}

/* Push a table; the brace has been read. */
static bool parse_object(parser *p) {
  lua_State *L = p->L;
  lua_newtable(L);
  skip_blanks(p);
  if (accept(p, '}')) return true;
  for (;;) {
    skip_blanks(p);
    if (!accept(p, '"')) return fail(p, "name in quotes expected");
    if (!parse_string(p)) return false;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) != LUA_TNIL) return fail(p, "a name stands twice");
    lua_pop(L, 1);
    skip_blanks(p);
    if (!accept(p, ':')) return fail(p, "':' expected");
    if (!parse_value(p)) return false;
    lua_rawset(L, -3);
    skip_blanks(p);
    if (accept(p, '}')) return true;
    if (!accept(p, ',')) return fail(p, "',' or '}' expected");
  }
}

static bool parse_nested(parser *p, bool (*parse)(parser *)) {
  if (p->depth == MAX_DEPTH) return fail(p, "nested too deeply");
  luaL_checkstack(p->L, 6, NULL);
  p->at++;
  p->depth++;
  const bool ok = parse(p);
  p->depth--;
  return ok;
}

/* Push the value that comes next. null becomes a light userdata, NULL. */
static bool parse_value(parser *p) {
  lua_State *L = p->L;
  skip_blanks(p);
  if (p->at == p->end) return fail(p, "value expected");
  switch (*p->at) {
  case '{': return parse_nested(p, parse_object);
  case '[': return parse_nested(p, parse_array);
  case '"': p->at++; return parse_string(p);
  case 't': lua_pushboolean(L, 1); return parse_word(p, "true");
  case 'f': lua_pushboolean(L, 0); return parse_word(p, "false");
  case 'n': lua_pushlightuserdata(L, NULL); return parse_word(p, "null");
  default:
    if (*p->at != '-' && !is_digit(p)) return fail(p, "value expected");
    return parse_number(p);
  }
}

/* mt._json_decode(text) -> value, or nil and a message; null is a light userdata */
int mtl_json_decode(lua_State *L) {
  size_t n;
  if (lua_type(L, 1) != LUA_TSTRING) {
    return mtl_argerror(L, 1, "_json_decode", "string expected, got %s",
                        mtl_typename(L, 1));
  }
  const char *text = lua_tolstring(L, 1, &n);
  parser p = {.L = L, .start = text, .at = text, .end = text + n};
  bool ok = parse_value(&p);
  if (ok) {
    skip_blanks(&p);
    if (p.at < p.end) ok = fail(&p, "more follows the value");
  }
  if (ok) return 1;
  lua_settop(L, 1);
  lua_pushnil(L);
  lua_pushfstring(L, "%s at byte %I", p.problem, (LUAI_UACINT)(p.at - p.start + 1));
  return 2;
}
