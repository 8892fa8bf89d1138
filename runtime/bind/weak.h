/* runtime/bind/weak.h -- API functions that other Lua versions lack, as weak
** references: there the module still loads, and luaopen_mytensor can say which Lua
** it needs. */
#ifndef MT_BIND_WEAK_H
#define MT_BIND_WEAK_H

/* since Lua 5.2 */
#pragma weak lua_absindex
#pragma weak lua_arith
#pragma weak lua_callk
#pragma weak lua_compare
#pragma weak lua_copy
#pragma weak lua_getglobal
#pragma weak lua_len
#pragma weak lua_pcallk
#pragma weak lua_rawgetp
#pragma weak lua_rawlen
#pragma weak lua_rawsetp
#pragma weak lua_setglobal
#pragma weak lua_tointegerx
#pragma weak lua_tonumberx
#pragma weak lua_upvalueid
#pragma weak lua_version
#pragma weak lua_yieldk
#pragma weak luaL_buffinitsize
#pragma weak luaL_checkversion_
#pragma weak luaL_execresult
#pragma weak luaL_fileresult
#pragma weak luaL_getsubtable
#pragma weak luaL_len
#pragma weak luaL_loadbufferx
#pragma weak luaL_loadfilex
#pragma weak luaL_prepbuffsize
#pragma weak luaL_pushresultsize
#pragma weak luaL_requiref
#pragma weak luaL_setfuncs
#pragma weak luaL_setmetatable
#pragma weak luaL_testudata
#pragma weak luaL_tolstring
#pragma weak luaL_traceback

/* since Lua 5.3 */
#pragma weak lua_geti
#pragma weak lua_isinteger
#pragma weak lua_isyieldable
#pragma weak lua_rotate
#pragma weak lua_seti
#pragma weak lua_stringtonumber

/* since Lua 5.4 */
#pragma weak lua_closeslot
#pragma weak lua_getiuservalue
#pragma weak lua_newuserdatauv
#pragma weak lua_resetthread
#pragma weak lua_setiuservalue
#pragma weak lua_setwarnf
#pragma weak lua_toclose
#pragma weak lua_warning
#pragma weak luaL_addgsub
#pragma weak luaL_typeerror

#endif
