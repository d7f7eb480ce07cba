/* Functions of nginx's that libraries look for with ffi.C; what they do is symbols.rs's. */
#include <stddef.h>
#include <stdint.h>

uintptr_t weir_lua_escape_uri(unsigned char *to, const unsigned char *from, size_t size, uintptr_t kind);

/* Without anywhere to write the number of bytes that are escaped, else where what was written ends. */
uintptr_t ngx_escape_uri(unsigned char *to, unsigned char *from, size_t size, uintptr_t kind)
{
    return weir_lua_escape_uri(to, from, size, kind);
}

/* The program's arguments, as the C library gives them to constructors; libraries want the path of the server. */
int ngx_argc;
char **ngx_argv;

__attribute__((constructor)) static void keep_arguments(int argc, char **argv)
{
    ngx_argc = argc;
    ngx_argv = argv;
}

/* Called once, so that the linker has a reason to take this file. */
void weir_lua_symbols(void) {}
