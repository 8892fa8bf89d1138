/* runtime/mtlua.c -- the host: Lua's command line, with mytensor inside. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "runtime/host.h"

int luaopen_mytensor(lua_State *L);

#define VERSION_SUFFIX "_" LUA_VERSION_MAJOR "_" LUA_VERSION_MINOR

typedef struct options {
  int interactive;    /* -i */
  int version;        /* -v */
  int execute;        /* -e */
  int noenv;          /* -E */
  int script;         /* index of the script in argv, or argc */
  int dashes;         /* "--" stands before the script: "-" is then a file name */
  const char *device; /* --device */
} options;

static const char *progname = "mtlua";
static lua_State *signal_state;       /* whom an interrupt stops */
static volatile sig_atomic_t raising; /* an interrupt has raised its error */
static int interrupted;               /* and nobody caught it */

static const char interrupt_message[] = "interrupted!";

/* ---- errors and interrupts ---- */

static void on_interrupt(int sig);

/* Without SA_RESTART, so that a read that waits for input ends too. */
static void catch_interrupts(struct sigaction *before) {
  struct sigaction ours = {.sa_handler = on_interrupt};
  sigaction(SIGINT, &ours, before);
}

static void interrupt_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  raising = 1;
  catch_interrupts(NULL);
  luaL_error(L, "%s", interrupt_message);
}

/* All that a signal handler may do to a Lua state is to set a hook. Until it has run,
 *the
 ** default action is back: a second Ctrl-C ends a C function that does not return. */
static void on_interrupt(int sig) {
  const int mask = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT;
  signal(sig, SIG_DFL);
  lua_sethook(signal_state, interrupt_hook, mask, 1);
}

static int message_handler(lua_State *L) {
  const char *text = lua_tostring(L, 1);
  if (text == NULL) {
    if (luaL_callmeta(L, 1, "__tostring") && lua_isstring(L, -1)) return 1;
    text = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  }
  if (raising && strstr(text, interrupt_message) != NULL) interrupted = 1;
  luaL_traceback(L, L, text, 1);
  return 1;
}

int mth_call(lua_State *L, int narg, int nres) {
  const int base = lua_gettop(L) - narg;
  lua_pushcfunction(L, message_handler);
  lua_insert(L, base);
  interrupted = raising = 0;
  signal_state = L;
  struct sigaction before;
  catch_interrupts(&before);
  const int status = lua_pcall(L, narg, nres, base);
  sigaction(SIGINT, &before, NULL);
  if (lua_gethook(L) == interrupt_hook) lua_sethook(L, NULL, 0, 0); /* came too late */
  lua_remove(L, base);
  return status;
}

static void print_error(const char *text) {
  if (progname != NULL) fprintf(stderr, "%s: ", progname);
  fprintf(stderr, "%s\n", text);
  fflush(stderr);
}

int mth_report(lua_State *L, int status) {
  if (status != LUA_OK) {
    const char *text = lua_tostring(L, -1);
    print_error(text != NULL ? text : "(error message is not a string)");
    lua_pop(L, 1);
  }
  return status;
}

void mth_set_interactive(void) { progname = NULL; }

/* ---- options ---- */

static void print_usage(const char *bad, const char *problem) {
  if (problem != NULL) {
    fprintf(stderr, "%s: '%s' %s\n", progname, bad, problem);
  } else {
    fprintf(stderr, "%s: unrecognized option '%s'\n", progname, bad);
  }
  fprintf(stderr,
          "usage: %s [options] [script [args]]\n"
          "  -e stat        execute string 'stat'\n"
          "  -l mod         require library 'mod' into global 'mod'\n"
          "  -l g=mod       require library 'mod' into global 'g'\n"
          "  -i             enter interactive mode after executing 'script'\n"
          "  -v             show versions, and the devices and libraries found\n"
          "  -E             ignore environment variables\n"
          "  -W             turn warnings on\n"
          "  --device name  let tensors be created there: cpu, cuda, cuda:1, auto\n"
          "  --             stop handling options\n"
          "  -              stop handling options and execute standard input\n",
          progname);
}

/* The argument of the option argv[*i] whose name has n characters: the rest of it, or
** the next word, which *i then stands at. */
static const char *option_argument(char **argv, int *i, size_t n) {
  if (argv[*i][n] != '\0') return argv[*i] + n;
  const char *next = argv[*i + 1];
  if (next == NULL || next[0] == '-') return NULL;
  (*i)++;
  return next;
}

/* The argument of --device name, --device=name. */
static const char *device_argument(char **argv, int *i) {
  static const size_t n = sizeof "--device" - 1;
  if (argv[*i][n] == '=') return argv[*i][n + 1] != '\0' ? argv[*i] + n + 1 : NULL;
  return option_argument(argv, i, n);
}

static int is_device(const char *word) {
  static const size_t n = sizeof "--device" - 1;
  return strncmp(word, "--device", n) == 0 && (word[n] == '\0' || word[n] == '=');
}

/* Fill opt; 0, after a message, if the command line is wrong. */
static int parse_options(options *opt, int argc, char **argv) {
  int i;
  for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
    const char *word = argv[i];
    const char *argument = word;
    if (strcmp(word, "--") == 0) {
      opt->dashes = 1;
      i++;
      break;
    }
    if (is_device(word)) {
      argument = opt->device = device_argument(argv, &i);
    } else if (word[1] == 'e' || word[1] == 'l') {
      argument = option_argument(argv, &i, 2);
      if (word[1] == 'e') opt->execute = 1;
    } else if (word[2] != '\0' || strchr("EWiv", word[1]) == NULL) {
      print_usage(word, NULL);
      return 0;
    } else {
      if (word[1] == 'E') opt->noenv = 1;
      if (word[1] == 'i') opt->interactive = 1;
      if (word[1] == 'v') opt->version = 1;
    }
    if (argument == NULL) {
      print_usage(word, "needs argument");
      return 0;
    }
  }
  opt->script = i;
  return 1;
}

/* arg: the script at 0, what follows it from 1, what stands before it below 0. */
static void push_arg_table(lua_State *L, int argc, char **argv, int script) {
  const int zero = script < argc ? script : 0;
  lua_createtable(L, argc - zero - 1 > 0 ? argc - zero - 1 : 0, zero + 1);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - zero);
  }
  lua_setglobal(L, "arg");
}

/* ---- running ---- */

static int run_loaded(lua_State *L, int status) {
  if (status == LUA_OK) status = mth_call(L, 0, 0);
  return mth_report(L, status);
}

static int run_string(lua_State *L, const char *text, const char *chunk) {
  return run_loaded(L, luaL_loadbuffer(L, text, strlen(text), chunk));
}

static int run_file(lua_State *L, const char *path) {
  return run_loaded(L, luaL_loadfile(L, path));
}

/* LUA_INIT_5_4, else LUA_INIT: code, or a file if it starts with '@'. */
static int run_init(lua_State *L) {
  const char *name = "=LUA_INIT" VERSION_SUFFIX;
  const char *init = getenv(name + 1);
  if (init == NULL) {
    name = "=LUA_INIT";
    init = getenv(name + 1);
  }
  if (init == NULL) return LUA_OK;
  return init[0] == '@' ? run_file(L, init + 1) : run_string(L, init, name);
}

int mth_require(lua_State *L, const char *modname) {
  lua_getglobal(L, "require");
  lua_pushstring(L, modname);
  return mth_call(L, 1, 1);
}

int mth_repl_function(lua_State *L, const char *name) {
  int status = mth_require(L, "mytensor");
  if (status != LUA_OK) return status;
  lua_pop(L, 1);
  status = mth_require(L, "mytensor.repl");
  if (status != LUA_OK) return status;
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
  return LUA_OK;
}

/* -l mod, -l global=mod; of mod-version the global is mod. Parts of mytensor are there
** once it is. */
static int run_library(lua_State *L, const char *argument) {
  const char *equals = strchr(argument, '=');
  const char *modname = equals != NULL ? equals + 1 : argument;
  const char *end = equals != NULL ? equals : strchr(argument, '-');
  int status = LUA_OK;
  if (strncmp(modname, "mytensor.", 9) == 0) {
    status = mth_require(L, "mytensor");
    if (status != LUA_OK) return mth_report(L, status);
    lua_pop(L, 1);
  }
  status = mth_require(L, modname);
  if (status == LUA_OK) {
    lua_pushglobaltable(L);
    lua_pushlstring(L, argument,
                    end != NULL ? (size_t)(end - argument) : strlen(argument));
    lua_pushvalue(L, -3);
    lua_settable(L, -3);
    lua_pop(L, 2);
  }
  return mth_report(L, status);
}

/* -e, -l and -W in their order. */
static int run_options(lua_State *L, char **argv, int end) {
  for (int i = 1; i < end; i++) {
    int status = LUA_OK;
    if (is_device(argv[i])) {
      device_argument(argv, &i);
    } else if (argv[i][1] == 'e') {
      status = run_string(L, option_argument(argv, &i, 2), "=(command line)");
    } else if (argv[i][1] == 'l') {
      status = run_library(L, option_argument(argv, &i, 2));
    } else if (argv[i][1] == 'W') {
      lua_warning(L, "@on", 0);
    }
    if (status != LUA_OK) return status;
  }
  return LUA_OK;
}

static int run_script(lua_State *L, const options *opt, char **argv) {
  const char *path = argv[opt->script];
  if (strcmp(path, "-") == 0 && !opt->dashes) path = NULL; /* standard input */
  int status = luaL_loadfile(L, path);
  if (status == LUA_OK) {
    if (lua_getglobal(L, "arg") != LUA_TTABLE) luaL_error(L, "'arg' is not a table");
    const int n = (int)luaL_len(L, -1);
    luaL_checkstack(L, n + 3, "too many arguments to script");
    for (int i = 1; i <= n; i++) lua_rawgeti(L, -i, i);
    lua_remove(L, -n - 1);
    status = mth_call(L, n, 0);
  }
  return mth_report(L, status);
}

/* Lua's version, then mytensor's: all that it found under -v, one line under -i. */
static void print_version(lua_State *L, int verbose) {
  printf("%s\n", LUA_COPYRIGHT);
  int status = mth_repl_function(L, verbose ? "print_versions" : "print_banner");
  if (status == LUA_OK) status = mth_call(L, 0, 0);
  mth_report(L, status);
  fflush(stdout);
}

/* main, protected: pushes true if all went well. */
static int run(lua_State *L) {
  const options *opt = lua_touserdata(L, 1);
  const int argc = (int)lua_tointeger(L, 2);
  char **argv = lua_touserdata(L, 3);
  if (opt->noenv) {
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
  }
  if (opt->device != NULL) {
    lua_pushstring(L, opt->device);
    lua_setfield(L, LUA_REGISTRYINDEX, "mytensor.device");
  }
  luaL_openlibs(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_mytensor);
  lua_setfield(L, -2, "mytensor");
  lua_pop(L, 1);
  push_arg_table(L, argc, argv, opt->script);
  const int has_script = opt->script < argc;
  const int interactive =
      opt->interactive || (!has_script && !opt->execute && !opt->version && isatty(0));
  if (opt->version || interactive) print_version(L, opt->version);
  if (!opt->noenv && run_init(L) != LUA_OK) return 0;
  if (run_options(L, argv, has_script ? opt->script : argc) != LUA_OK) return 0;
  if (has_script && run_script(L, opt, argv) != LUA_OK) return 0;
  if (interactive) {
    mth_repl(L);
  } else if (!has_script && !opt->execute && !opt->version) {
    if (run_file(L, NULL) != LUA_OK) return 0;
  }
  lua_pushboolean(L, 1);
  return 1;
}

int main(int argc, char **argv) {
  options opt = {0};
  if (argc > 0 && argv[0][0] != '\0') progname = argv[0];
  if (!parse_options(&opt, argc, argv)) return EXIT_FAILURE;
  lua_State *L = luaL_newstate();
  if (L == NULL) {
    print_error("cannot create a Lua state: not enough memory");
    return EXIT_FAILURE;
  }
  mth_arena_use(L);
  lua_pushcfunction(L, run);
  lua_pushlightuserdata(L, &opt);
  lua_pushinteger(L, argc);
  lua_pushlightuserdata(L, argv);
  const int status = lua_pcall(L, 3, 1, 0);
  const int ok = status == LUA_OK && lua_toboolean(L, -1);
  mth_report(L, status);
  lua_close(L);
  if (!ok && interrupted) { /* the shell is to see what ended us: 130 */
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
