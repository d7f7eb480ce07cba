module weir.example/hello

go 1.21
