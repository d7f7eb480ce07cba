// The header in C++, whose functions are found by their names in C.
#include <weir.h>

static void handler(weir_request *request, void *) { weir_response_end(request, nullptr, 0); }

int main()
{
    weir_builder *builder = weir_builder_new();
    int code = weir_builder_location(builder, "/", handler, nullptr, [](void *) {});
    weir_builder_free(builder);
    return code == WEIR_OK ? 0 : 1;
}
