// Tells the gateways of this opencode what the user wrote; `dtdr mcp --setup opencode` fills in COMMAND.
import { spawn } from "node:child_process"

const [program, ...words] = COMMAND

const tell = (prompt) =>
  new Promise((resolve) => {
    const hook = spawn(program, [...words, `${process.pid}`], {
      stdio: ["pipe", "ignore", "ignore"],
    })
    hook.on("error", resolve)
    hook.on("close", resolve)
    hook.stdin.on("error", () => {})
    hook.stdin.end(JSON.stringify({ prompt }))
  })

let waiting = ""

export const dtdr = async () => ({
  "chat.message": (_, { parts }) => {
    const texts = parts.filter((part) => part.type === "text").map((part) => part.text)
    waiting = texts.join("\n")
    return tell(waiting)
  },
  // Servers may have been started after the first message: they are told once more.
  "chat.params": () => {
    const prompt = waiting
    waiting = ""
    return prompt ? tell(prompt) : undefined
  },
})
