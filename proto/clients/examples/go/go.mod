module holdfast.example/proto/clients/examples/go

go 1.23

replace (
	holdfast.example/proto/clients/go => ../../go
	holdfast.example/proto/clients/go/gocron => ../../go/gocron
)

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	holdfast.example/proto/clients/go v0.0.0
	holdfast.example/proto/clients/go/gocron v0.0.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
)
