module holdfast.example/proto/clients/go

go 1.21
