// chart does with Helm's own libraries what `helm template`, `helm lint` and the notes of `helm install` do with a chart, without
// the rest of Helm, which takes minutes to build: values against their schema, templates, Helm's rules for charts.
//
//	chart template | notes | lint   -values FILE -namespace NAME -name RELEASE FOLDER
package main

import (
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) < 2 {
		check(fmt.Errorf("chart template | notes | lint"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	valuesFile := flags.String("values", "", "values of the user")
	namespace := flags.String("namespace", "kube-system", "the release's")
	name := flags.String("name", "kproxy", "the release's")
	check(flags.Parse(os.Args[2:]))
	values := chartutil.Values{}
	if *valuesFile != "" {
		var err error
		values, err = chartutil.ReadValuesFile(*valuesFile)
		check(err)
	}
	switch os.Args[1] {
	case "template", "notes":
		files, err := render(flags.Arg(0), values, *name, *namespace)
		check(err)
		show(files, os.Args[1] == "notes")
	case "lint":
		result := lint.All(flags.Arg(0), values, *namespace, true)
		for _, message := range result.Messages {
			fmt.Println(message)
		}
		if result.HighestSeverity >= support.WarningSev {
			os.Exit(1)
		}
	default:
		check(fmt.Errorf("%s: unknown", os.Args[1]))
	}
}

func render(folder string, values chartutil.Values, name, namespace string) (map[string]string, error) {
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	// Refuses what the schema does not allow.
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// show prints either the notes or every other file that has an object.
func show(files map[string]string, notes bool) {
	names := []string{}
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text := strings.TrimSpace(files[name])
		if isNotes := path.Base(name) == "NOTES.txt"; isNotes != notes || text == "" || strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		if !notes {
			fmt.Println("---")
		}
		fmt.Println(text)
	}
}
