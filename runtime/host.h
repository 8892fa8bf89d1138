/* runtime/host.h -- what the files of the host share: mtlua.c, repl.c, lineedit.c,
** arena.c. */
#ifndef MYTENSOR_HOST_H
#define MYTENSOR_HOST_H

#include <stddef.h>

#include <lua.h>

/* ---- mtlua.c ---- */

/* lua_pcall with the traceback handler; an interrupt (Ctrl-C) raises "interrupted!".
** On an error its message, and nothing else, is left on the stack. */
int mth_call(lua_State *L, int narg, int nres);

/* Print the message on top of the stack unless status is LUA_OK, and pop it.
** An error that interrupts the host is the user's own doing: it is remembered. */
int mth_report(lua_State *L, int status);

/* From now on messages come without the name of the program. */
void mth_set_interactive(void);

/* require(modname); on an error (returned) its message is left on the stack. */
int mth_require(lua_State *L, const char *modname);

/* Push the function of that name of lua/mytensor/repl.lua; on an error (returned) its
** message instead. */
int mth_repl_function(lua_State *L, const char *name);

/* ---- arena.c ---- */

/* Let the state take its memory from a region of small blocks, if the system gives one. */
void mth_arena_use(lua_State *L);

/* ---- repl.c ---- */

/* Read statements from standard input, run them and print what expressions give, up to
** the end of the input. */
void mth_repl(lua_State *L);

/* ---- lineedit.c ---- */

typedef enum { MTH_LINE, MTH_END, MTH_INTERRUPTED } mth_input;

/* Push what may follow line[0 .. end), a list of completions of its last name, or nil.
 */
typedef void mth_completer(lua_State *L, const char *line, size_t end);

/* Open libedit or readline if standard input is a terminal; without them lines come
** from stdio. Reads the history file. */
void mth_edit_open(lua_State *L, mth_completer *complete);

/* Read a line, without its end, and push it if the result is MTH_LINE. */
mth_input mth_edit_read(lua_State *L, const char *prompt);

/* Remember a line that the user typed, in the history file too. */
void mth_edit_remember(const char *line);

#endif
