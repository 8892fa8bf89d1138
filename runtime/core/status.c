/* runtime/core/status.c -- the thread's last error. */
#include <stdarg.h>
#include <stdio.h>
#include "runtime/core/status.h"

static _Thread_local mt_error last;

mt_error *mt_last_error(void) { return &last; }

static mt_status fail(mt_status status, int arg, const char *format, va_list args) {
  char text[sizeof last.text]; /* an argument may be the last text itself */
  vsnprintf(text, sizeof text, format, args);
  last.status = status;
  last.arg = arg;
  __builtin_memcpy(last.text, text, sizeof text);
  return status;
}

mt_status mt_fail(mt_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fail(status, 0, format, args);
  va_end(args);
  return status;
}

mt_status mt_fail_arg(mt_status status, int arg, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fail(status, arg, format, args);
  va_end(args);
  return status;
}
