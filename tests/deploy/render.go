// Renders templates of a Helm chart with Go's own template package, and those of Helm's functions that the chart uses.
// Arguments: the values as JSON, the name of the release, and the files.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

func main() {
	var values map[string]any
	check(json.Unmarshal([]byte(os.Args[1]), &values))
	data := map[string]any{"Values": values, "Release": map[string]any{"Name": os.Args[2]}}
	functions := template.FuncMap{
		"toJson": func(value any) string {
			text, err := json.Marshal(value)
			check(err)
			return string(text)
		},
		"toString": func(value any) string { return fmt.Sprint(value) },
	}
	for _, file := range os.Args[3:] {
		parsed, err := template.New(filepath.Base(file)).Funcs(functions).Option("missingkey=error").ParseFiles(file)
		check(err)
		check(parsed.Execute(os.Stdout, data))
		fmt.Println("---")
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
