// The names that a program expects on the global object.

import "./encoding";
import "./events";
import "./promise";
import "./url";
import "./streams";
import "./blob";
import "./fetch";
import "./clone";
import "./performance";
import "./intl";
import { defineModule } from "../modules";

// The globals are part of the prelude, so importing them again does nothing (Pi §2A.3).
defineModule("pi:polyfills/node_globals", {});
defineModule("pi:polyfills/fetch", {});
