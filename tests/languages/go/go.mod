// SPDX-License-Identifier: Apache-2.0
module example.com/languages

go 1.21

require github.com/apache/flink-statefun/statefun-sdk-go/v3 v3.3.0

require google.golang.org/protobuf v1.26.0 // indirect
