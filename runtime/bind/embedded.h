/* runtime/bind/embedded.h -- the Lua files inside the binary, and the headers that C
** modules are compiled with; made by the Makefile. */
#ifndef MT_EMBEDDED_H
#define MT_EMBEDDED_H

#include <stddef.h>

typedef struct mt_embedded {
  const char *name; /* module name: "mytensor.nn.linear"; NULL ends the list */
  const char *data;
  size_t size;
} mt_embedded;

extern const mt_embedded mt_embedded_files[];
extern const mt_embedded mt_embedded_headers[]; /* name: "mytensor.h", "lua.h", ... */

#endif
