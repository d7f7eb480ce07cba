/* Loads the library, serves, unloads it, twice: dlopen and dlclose by `loaded LIBRARY`. */
#include <dlfcn.h>
#include <stdio.h>

#include <weir.h>

static int once(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    weir_builder *(*builder_new)(void);
    void (*builder_free)(weir_builder *);
    int (*server_start)(const weir_builder *, weir_server **);
    int (*server_free)(weir_server *);
    weir_builder *builder;
    weir_server *server;

    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&builder_new = dlsym(library, "weir_builder_new");
    *(void **)&builder_free = dlsym(library, "weir_builder_free");
    *(void **)&server_start = dlsym(library, "weir_server_start");
    *(void **)&server_free = dlsym(library, "weir_server_free");
    if (dlsym(library, "lua_newstate") != NULL)
        return 2;
    builder = builder_new();
    if (server_start(builder, &server) != WEIR_OK)
        return 3;
    builder_free(builder);
    if (server_free(server) != WEIR_OK)
        return 4;
    return dlclose(library) == 0 ? 0 : 5;
}

int main(int argc, char **argv)
{
    int code;

    if (argc != 2)
        return 9;
    code = once(argv[1]);
    return code != 0 ? code : once(argv[1]);
}
