// SPDX-License-Identifier: Apache-2.0

// One function of the Go SDK that does what its messages say: server PORT
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/apache/flink-statefun/statefun-sdk-go/v3/pkg/statefun"
)

var (
	commandsType = statefun.MakeJsonType(statefun.TypeNameFrom("com.example.languages/commands"))
	out          = statefun.TypeNameFrom("com.example.languages/out")

	total = statefun.ValueSpec{Name: "total", ValueType: statefun.Int64Type}
	note  = statefun.ValueSpec{
		Name:       "note",
		ValueType:  statefun.StringType,
		Expiration: statefun.ExpireAfterWrite(time.Hour),
	}
)

type command struct {
	Do           string
	By           int64
	Name         string
	To           string
	Id           string
	Commands     json.RawMessage
	Milliseconds int64
	Token        string
	Text         string
}

func run(context statefun.Context, message statefun.Message) error {
	var commands []command
	if err := message.As(commandsType, &commands); err != nil {
		return err
	}
	for _, one := range commands {
		if err := execute(context, one); err != nil {
			return err
		}
	}
	return nil
}

func execute(context statefun.Context, command command) error {
	switch command.Do {
	case "add":
		var sum int64
		context.Storage().Get(total, &sum)
		sum += command.By
		context.Storage().Set(total, sum)
		return report(context, command.Name, "total", sum)
	case "send":
		message, err := addressed(command)
		if err == nil {
			context.Send(message)
		}
		return err
	case "after":
		return sendAfter(context, command)
	case "cancel":
		token, err := statefun.NewCancellationToken(command.Token)
		if err == nil {
			context.CancelDelayedMessage(token)
		}
		return err
	case "remember":
		context.Storage().Set(note, command.Text)
		return nil
	case "forget":
		context.Storage().Remove(note)
		return nil
	case "recall":
		var text string
		if context.Storage().Get(note, &text) {
			return report(context, command.Name, "note", text)
		}
		return report(context, command.Name, "note", nil)
	case "fail":
		return errors.New(command.Text)
	default:
		return fmt.Errorf("unknown command: %s", command.Do)
	}
}

func sendAfter(context statefun.Context, command command) error {
	message, err := addressed(command)
	if err != nil {
		return err
	}
	delay := time.Duration(command.Milliseconds) * time.Millisecond
	if command.Token == "" {
		context.SendAfter(delay, message)
		return nil
	}
	token, err := statefun.NewCancellationToken(command.Token)
	if err == nil {
		context.SendAfterWithCancellationToken(delay, token, message)
	}
	return err
}

func addressed(command command) (statefun.MessageBuilder, error) {
	target, err := statefun.ParseTypeName(command.To)
	return statefun.MessageBuilder{
		Target:    statefun.Address{FunctionType: target, Id: command.Id},
		Value:     command.Commands,
		ValueType: commandsType,
	}, err
}

func report(context statefun.Context, name, fact string, value any) error {
	self := context.Self()
	record, err := json.Marshal(map[string]any{
		"name":    name,
		"address": fmt.Sprintf("%s/%s", self.FunctionType, self.Id),
		fact:      value,
	})
	if err == nil {
		context.SendEgress(statefun.KafkaEgressBuilder{
			Target: out, Topic: topic(), Key: self.Id, Value: record,
		})
	}
	return err
}

func topic() string {
	if name := os.Getenv("RESULTS_TOPIC"); name != "" {
		return name
	}
	return "results"
}

func main() {
	functions := statefun.StatefulFunctionsBuilder()
	err := functions.WithSpec(statefun.StatefulFunctionSpec{
		FunctionType: statefun.TypeNameFrom("com.example.languages/go"),
		States:       []statefun.ValueSpec{total, note},
		Function:     statefun.StatefulFunctionPointer(run),
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	log.Fatal(http.Serve(listener, functions.AsHandler()))
}
