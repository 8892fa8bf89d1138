/* runtime/lineedit.c -- lines from the terminal: libedit or readline, opened at the
 *first
 ** prompt, with history and completion; from stdio where neither is found. */
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "runtime/host.h"

#define HISTORY_LINES 1000

/* What we use of the editor: both libraries have these names, but for the two that only
** readline has. Function pointers come from dlsym through the union below. */
static struct {
  char *(*readline)(const char *prompt);
  int (*add_history)(const char *line);
  char **(*completion_matches)(const char *text, char *(*next)(const char *, int));
  int (*insert_text)(const char *text);
  void (*callback_install)(const char *prompt, void (*handler)(char *));
  void (*callback_remove)(void);
  void (*callback_read)(void);
  void (*free_line_state)(void);     /* readline */
  void (*callback_sigcleanup)(void); /* readline */
  char **line_buffer;
  int *completion_append;  /* the character that ends a completed word */
  int *completion_is_ours; /* do not look for files too */
} editor;

static lua_State *completing; /* the state whose values the completer looks at */
static mth_completer *completer;
static volatile sig_atomic_t was_interrupted;
static char *history_file;  /* NULL: cannot be kept */
static char *last_line;     /* what was remembered last */
static char *received_line; /* what readline's callback was given */
static int received;

/* ---- history ---- */

/* The folders of path, made as far as they are missing; path ends in a file's name. */
static void make_folders(char *path) {
  for (char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
    *p = '\0';
    (void)mkdir(path, 0700); /* where this fails, opening the file will */
    *p = '/';
  }
}

/* $XDG_STATE_HOME/mytensor/history or ~/.local/state/mytensor/history, or NULL. */
static char *find_history_file(void) {
  static const char tail[] = "/mytensor/history";
  const char *base = getenv("XDG_STATE_HOME");
  const char *middle = "";
  if (base == NULL || base[0] != '/') {
    base = getenv("HOME");
    middle = "/.local/state";
  }
  if (base == NULL || base[0] != '/') return NULL;
  const size_t n = strlen(base) + strlen(middle) + sizeof tail;
  char *path = malloc(n);
  if (path == NULL) return NULL;
  snprintf(path, n, "%s%s%s", base, middle, tail);
  make_folders(path);
  return path;
}

/* Give the editor the last lines of the history file, which is cut to them when it has
** grown to twice as many. */
static void load_history(void) {
  char *lines[2 * HISTORY_LINES];
  long count = 0;
  char *line = NULL;
  size_t size = 0;
  FILE *f = history_file != NULL ? fopen(history_file, "r") : NULL;
  if (f == NULL) return;
  for (ssize_t n; (n = getline(&line, &size, f)) > 0; count++) {
    if (line[n - 1] == '\n') line[n - 1] = '\0';
    char **slot = &lines[count % (2 * HISTORY_LINES)];
    if (count >= 2 * HISTORY_LINES) free(*slot);
    *slot = strdup(line);
  }
  free(line);
  fclose(f);
  const long first = count > HISTORY_LINES ? count - HISTORY_LINES : 0;
  f = count >= 2 * HISTORY_LINES ? fopen(history_file, "w") : NULL;
  for (long i = count > 2 * HISTORY_LINES ? count - 2 * HISTORY_LINES : 0; i < count;
       i++) {
    char *text = lines[i % (2 * HISTORY_LINES)];
    if (i >= first && text != NULL) {
      editor.add_history(text);
      if (f != NULL) fprintf(f, "%s\n", text);
    }
    free(text);
  }
  if (f != NULL) fclose(f);
}

void mth_edit_remember(const char *line) {
  if (editor.add_history == NULL || line[strspn(line, " \t")] == '\0') return;
  if (last_line != NULL && strcmp(last_line, line) == 0) return;
  free(last_line);
  last_line = strdup(line);
  editor.add_history(line);
  FILE *f = history_file != NULL ? fopen(history_file, "a") : NULL;
  if (f == NULL) return;
  fprintf(f, "%s\n", line);
  fclose(f);
}

/* ---- completion ---- */

/* The next candidate of the list on the top of the stack; the editor frees it. */
static char *next_candidate(const char *text, int again) {
  static lua_Integer i;
  (void)text;
  if (!again) i = 0;
  lua_rawgeti(completing, -1, ++i);
  const char *name = lua_tostring(completing, -1);
  char *copy = name != NULL ? strdup(name) : NULL;
  lua_pop(completing, 1);
  return copy;
}

static char **complete_word(const char *text, int start, int end) {
  char **matches = NULL;
  const char *line = *editor.line_buffer;
  if (editor.completion_append != NULL) *editor.completion_append = '\0';
  if (editor.completion_is_ours != NULL) *editor.completion_is_ours = 1;
  const char before = start > 0 ? line[start - 1] : '\0';
  if (text[0] == '\0' && before != '.' && before != ':') {
    if (editor.insert_text != NULL) editor.insert_text("  "); /* Tab indents */
    return NULL;
  }
  completer(completing, line, (size_t)end);
  if (lua_istable(completing, -1)) {
    matches = editor.completion_matches(text, next_candidate);
  }
  lua_pop(completing, 1);
  return matches;
}

/* ---- opening ---- */

static void *library;

static int find(const char *name, void *slot) {
  void *symbol = dlsym(library, name);
  memcpy(slot, &symbol, sizeof symbol); /* ISO C has no cast from data to function */
  return symbol != NULL;
}

static void set_int(const char *name, int value) {
  int *variable;
  if (find(name, &variable)) *variable = value;
}

static void set_completion(void) {
  char **(**attempt)(const char *, int, int);
  const char **breaks;
  const char **program;
  if (!find("rl_completion_matches", &editor.completion_matches)) return;
  if (!find("rl_line_buffer", &editor.line_buffer)) return;
  if (!find("rl_attempted_completion_function", &attempt)) return;
  find("rl_insert_text", &editor.insert_text);
  find("rl_completion_append_character", &editor.completion_append);
  find("rl_attempted_completion_over", &editor.completion_is_ours);
  for (int i = 0; i < 2; i++) { /* libedit looks at the second */
    if (find(i == 0 ? "rl_completer_word_break_characters"
                    : "rl_basic_word_break_characters",
             &breaks)) {
      *breaks = " \t\n\"'`\\@$><=;|&{}()[]+-*/%^~#,.:!";
    }
  }
  if (find("rl_readline_name", &program)) *program = "mtlua";
  *attempt = complete_word;
}

void mth_edit_open(lua_State *L, mth_completer *complete) {
  static const char *const names[] = {"libedit.so.2", "libedit.so.0",
                                      "libreadline.so.8"};
  const char *terminal = getenv("TERM");
  completing = L;
  completer = complete;
  if (!isatty(STDIN_FILENO) || terminal == NULL || strcmp(terminal, "dumb") == 0)
    return;
  for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++) {
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (library == NULL) return;
  setlocale(LC_CTYPE, ""); /* libedit would drop what is not ASCII */
  if (!find("readline", &editor.readline)) return;
  if (find("rl_callback_sigcleanup", &editor.callback_sigcleanup)) {
    find("rl_free_line_state", &editor.free_line_state);
    find("rl_callback_handler_install", &editor.callback_install);
    find("rl_callback_handler_remove", &editor.callback_remove);
    find("rl_callback_read_char", &editor.callback_read);
  }
  set_int("rl_catch_signals", 0); /* libedit would pass them on to the process group */
  set_completion();
  void (*using_history)(void);
  if (find("using_history", &using_history)) using_history();
  if (find("add_history", &editor.add_history)) {
    history_file = find_history_file();
    load_history();
  }
}

/* ---- reading ---- */

static void on_interrupt(int sig) {
  (void)sig;
  was_interrupted = 1;
}

static void on_line(char *line) {
  received_line = line;
  received = 1;
  editor.callback_remove(); /* before the next prompt, the statement runs */
}

/* readline itself starts again after a signal; its callbacks leave the waiting to us.
 */
static char *read_with_callbacks(const char *prompt) {
  received = 0;
  received_line = NULL;
  editor.callback_install(prompt, on_line);
  while (!received && !was_interrupted) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, -1) > 0) editor.callback_read();
  }
  if (!received) {
    editor.free_line_state();
    editor.callback_sigcleanup();
    editor.callback_remove();
  }
  return received_line;
}

static char *read_plain(const char *prompt) {
  char *line = NULL;
  size_t size = 0;
  fputs(prompt, stdout);
  fflush(stdout);
  const ssize_t n = getline(&line, &size, stdin);
  if (n <= 0) {
    clearerr(stdin);
    free(line);
    return NULL;
  }
  if (line[n - 1] == '\n') line[n - 1] = '\0';
  return line;
}

mth_input mth_edit_read(lua_State *L, const char *prompt) {
  static char *line; /* Lua may have no memory for it: then the next call frees it */
  struct sigaction ours = {.sa_handler = on_interrupt};
  struct sigaction theirs;
  free(line);
  line = NULL;
  completing = L;
  was_interrupted = 0;
  if (isatty(STDIN_FILENO)) sigaction(SIGINT, &ours, &theirs);
  if (editor.callback_install != NULL) {
    line = read_with_callbacks(prompt);
  } else if (editor.readline != NULL) {
    line = editor.readline(prompt);
  } else {
    line = read_plain(prompt);
  }
  if (isatty(STDIN_FILENO)) sigaction(SIGINT, &theirs, NULL);
  if (was_interrupted) {
    putchar('\n');
    return MTH_INTERRUPTED;
  }
  if (line == NULL) return MTH_END;
  lua_pushstring(L, line);
  return MTH_LINE;
}
